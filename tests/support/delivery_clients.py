"""A client that consumes by deliveries, as a test uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import httpx

WELL_BEFORE_ITS_TIME_SECONDS: Final = 20.0  # of a request that would wait for 30


class DeliveryClient:
    """Talks to one broker about one topic, for one group."""

    def __init__(
        self, client: httpx.AsyncClient, group: str = "billing", topic: str = "orders"
    ) -> None:
        self.client = client
        self.group = group
        self.topic = topic

    async def create(self, queue_count: int = 1, **settings: Any) -> None:  # noqa: ANN401
        """Create topic and group; the group starts at the earliest message."""
        queues = {"read_queue_count": queue_count, "write_queue_count": queue_count}
        assert (await self.client.put(f"/topics/{self.topic}", json=queues)).is_success
        path = f"/groups/{self.group}"
        assert (await self.client.put(path, json={"start": "earliest", **settings})).is_success

    async def send(self, *texts: str, queue_id: int = 0, **fields: Any) -> None:  # noqa: ANN401
        """Send messages; *fields* are of each of them."""
        messages = [{"body": {"text": text}, **fields} for text in texts]
        path = f"/topics/{self.topic}/messages"
        if "sharding_key" not in fields:
            path += f"?queue_id={queue_id}"
        answer = await self.client.post(path, json={"messages": messages})
        assert answer.is_success, answer.text

    async def ask(self, count_max: int = 32, **fields: Any) -> httpx.Response:  # noqa: ANN401
        """Ask for messages."""
        body = {"topic": self.topic, "count_max": count_max, **fields}
        return await self.client.post(f"/groups/{self.group}/deliveries", json=body)

    async def receive(
        self,
        count_max: int = 32,
        **fields: Any,  # noqa: ANN401
    ) -> list[dict[str, Any]]:
        """Return the messages that were handed out."""
        answer = await self.ask(count_max, **fields)
        assert answer.status_code == 200, answer.text
        deliveries: list[dict[str, Any]] = answer.json()["deliveries"]
        return deliveries

    async def ack(self, *deliveries: dict[str, Any]) -> httpx.Response:
        """Acknowledge."""
        return await self._post("ack", deliveries)

    async def nack(
        self,
        *deliveries: dict[str, Any],
        **fields: Any,  # noqa: ANN401
    ) -> httpx.Response:
        """Give up."""
        return await self._post("nack", deliveries, **fields)

    async def extend(
        self,
        *deliveries: dict[str, Any],
        **fields: Any,  # noqa: ANN401
    ) -> httpx.Response:
        """Ask for more time."""
        return await self._post("extend", deliveries, **fields)

    async def committed(self, queue_id: int = 0) -> int | None:
        """Return where the group stands in a queue."""
        path = f"/groups/{self.group}/offsets?topic={self.topic}"
        offsets = (await self.client.get(path)).json()["offsets"]
        committed: int | None = offsets[queue_id]["committed_offset"]
        return committed

    async def _post(
        self,
        what: str,
        deliveries: Sequence[dict[str, Any]],
        **fields: Any,  # noqa: ANN401
    ) -> httpx.Response:
        body = {"handles": [one["handle"] for one in deliveries], **fields}
        return await self.client.post(f"/groups/{self.group}/deliveries:{what}", json=body)


def texts(deliveries: Sequence[dict[str, Any]]) -> list[str]:
    """Return the bodies of messages that were handed out."""
    return [one["message"]["body"]["text"] for one in deliveries]
