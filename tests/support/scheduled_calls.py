"""Calls of a broker about delayed messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx

from eruca_chassis.app import ServiceApp
from support.brokers import broker_of
from support.clocks import ManualClock
from support.waiting import until


async def send(client: httpx.AsyncClient, **message: object) -> dict[str, Any]:
    answer = await client.post(
        "/topics/orders/messages",
        params={"queue_id": 1},
        json={"body": {"text": "later"}} | message,
    )
    assert answer.status_code == 201, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


async def pull(client: httpx.AsyncClient, wait_seconds: float = 0) -> list[dict[str, Any]]:
    answer = await client.get(
        "/topics/orders/queues/1/messages", params={"offset": 0, "wait_seconds": wait_seconds}
    )
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


async def listed(client: httpx.AsyncClient, **query: str | int) -> list[str]:
    ids: list[str] = []
    while True:
        answer = await client.get("/scheduled", params=query)
        assert answer.status_code == 200, answer.text
        ids += [item["message_id"] for item in answer.json()["scheduled"]]
        if (cursor := answer.json()["next_cursor"]) is None:
            return ids
        query["cursor"] = cursor


async def nothing_waits(app: ServiceApp) -> None:
    """Return once everything that is due has been delivered, by the broker's own loop or here."""
    timers = broker_of(app).store.timers
    while await broker_of(app).timers.fire():
        pass
    await until(lambda: not len(timers) + timers.held_count)


def now_of(clock: ManualClock) -> datetime:
    return datetime.fromtimestamp(clock.now_ms() / 1_000, UTC)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
