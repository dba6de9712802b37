"""A member of a group, for tests that need its locks: joined and holding, by plain HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

INCARNATION = "first"


@dataclass(slots=True)
class HoldingMember:
    """A member and the tokens of the queues it reads."""

    client: httpx.AsyncClient
    group: str
    client_id: str
    tokens: dict[tuple[str, int], int]

    async def lock(self, topic: str, queue_id: int) -> None:
        """Lock one more queue."""
        answer = await self.client.post(
            f"/groups/{self.group}/locks",
            json={
                "client_id": self.client_id,
                "incarnation": INCARNATION,
                "queues": [{"topic": topic, "queue_id": queue_id}],
            },
        )
        assert answer.status_code == 200, answer.text
        for lock in answer.json()["locks"]:
            self.tokens[lock["topic"], lock["queue_id"]] = lock["token"]

    async def send_back(self, *messages: dict[str, Any]) -> httpx.Response:
        """Send messages back; each needs topic, queue_id and queue_offset."""
        return await self.client.post(
            f"/groups/{self.group}/retries",
            json={
                "client_id": self.client_id,
                "incarnation": INCARNATION,
                "messages": [
                    {"token": self.tokens.get((m["topic"], m["queue_id"]), 0)} | m for m in messages
                ],
            },
        )


async def joined(
    client: httpx.AsyncClient, group: str, topic: str, *, client_id: str = "me"
) -> HoldingMember:
    """Return a new member that subscribes to *topic*, and holds nothing yet."""
    answer = await client.put(
        f"/groups/{group}/members/{client_id}",
        json={
            "incarnation": INCARNATION,
            "subscriptions": [{"topic": topic}],
            "start": "earliest",
        },
    )
    assert answer.status_code == 201, answer.text
    return HoldingMember(client, group, client_id, {})
