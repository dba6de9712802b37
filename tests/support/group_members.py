"""Members of consumer groups, for tests of the broker's API: one client, one incarnation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx

from eruca_chassis.app import ServiceApp
from support.brokers import broker_of
from support.waiting import until


@dataclass
class TestMember:
    """A member of group ``g``; *tokens* are those of the locks it was last granted."""

    __test__ = False

    client: httpx.AsyncClient
    name: str = "a"
    incarnation: str = "1"
    group: str = "g"
    topics: tuple[str, ...] = ("orders",)
    tokens: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def _who(self) -> dict[str, str]:
        return {"client_id": self.name, "incarnation": self.incarnation}

    async def beat(self, **fields: Any) -> httpx.Response:  # noqa: ANN401  (Heartbeat's fields)
        """Send a heartbeat."""
        heartbeat: dict[str, Any] = {
            "incarnation": self.incarnation,
            "subscriptions": [{"topic": topic} for topic in self.topics],
            "locks": [
                {"topic": topic, "queue_id": queue_id, "token": token}
                for (topic, queue_id), token in self.tokens.items()
            ],
        }
        path = f"/groups/{self.group}/members/{self.name}"
        return await self.client.put(path, json={**heartbeat, **fields})

    async def leave(self) -> httpx.Response:
        """Leave the group."""
        path = f"/groups/{self.group}/members/{self.name}?incarnation={self.incarnation}"
        return await self.client.delete(path)

    async def lock(
        self, *queue_ids: int, topic: str = "orders", wait_seconds: float = 0
    ) -> httpx.Response:
        """Ask for queues of *topic*, and keep the tokens of those that are granted."""
        queues = [{"topic": topic, "queue_id": queue_id} for queue_id in queue_ids]
        answer = await self.client.post(
            f"/groups/{self.group}/locks",
            json={**self._who, "queues": queues, "wait_seconds": wait_seconds},
        )
        for lock in answer.json().get("locks", ()):
            self.tokens[lock["topic"], lock["queue_id"]] = lock["token"]
        return answer

    async def release(
        self, *queues: tuple[int, int | None], topic: str = "orders"
    ) -> httpx.Response:
        """Release queues, each with its final offset or None."""
        entries = [
            {"topic": topic, "queue_id": q, "token": self.tokens[topic, q], "offset": offset}
            for q, offset in queues
        ]
        return await self.client.post(
            f"/groups/{self.group}/locks:release", json={**self._who, "queues": entries}
        )

    async def commit(self, *offsets: tuple[int, int], topic: str = "orders") -> httpx.Response:
        """Commit offsets of queues with the tokens it has."""
        entries = [
            {"topic": topic, "queue_id": q, "offset": offset, "token": self.tokens[topic, q]}
            for q, offset in offsets
        ]
        return await self.client.put(
            f"/groups/{self.group}/offsets", json={**self._who, "offsets": entries}
        )


async def held(app: ServiceApp, count: int = 1) -> None:
    """Return once the broker holds so many requests about groups."""
    await until(lambda: len(broker_of(app).group_work.watchers) >= count)
