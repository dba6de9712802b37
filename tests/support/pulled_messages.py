"""Messages of the topic `orders`, sent to a broker and pulled from it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from eruca.contract.wire import RECORDS_MEDIA_TYPE
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of
from support.patience import PATIENCE_SECONDS

QUEUE = "/topics/orders/queues/0/messages"
AS_RECORDS = {"accept": RECORDS_MEDIA_TYPE}


async def put(
    client: httpx.AsyncClient, *bodies: str, queue_id: int = 0, tag: str | None = None
) -> None:
    messages = [{"body": {"text": body}, "tag": tag} for body in bodies]
    answer = await client.post(
        "/topics/orders/messages", params={"queue_id": queue_id}, json={"messages": messages}
    )
    assert answer.status_code == 201


async def held(app: ServiceApp, count: int) -> None:
    """Return once *count* requests are being held."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(broker_of(app).held) != count:  # noqa: ASYNC110  (it has no event for this)
            await asyncio.sleep(0)


def texts(answer: dict[str, Any]) -> list[str]:
    return [message["body"]["text"] for message in answer["messages"]]


def position(queue_id: int, offset: int = 0, **more: str) -> dict[str, Any]:
    return {"topic": "orders", "queue_id": queue_id, "offset": offset, **more}


async def pulled(client: httpx.AsyncClient, place: dict[str, Any]) -> dict[str, Any]:
    answer = await client.get(
        f"/topics/{place['topic']}/queues/{place['queue_id']}/messages",
        params={"offset": place["queue_offset"], "count_max": 1},
    )
    [message] = answer.json()["messages"]
    found: dict[str, Any] = message
    return found
