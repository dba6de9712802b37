"""Sends under an idempotency key."""

from __future__ import annotations

from typing import Final

import httpx

PAID: Final = {
    "body": {"text": "order 17 is paid"},
    "tag": "paid",
    "keys": ["17"],
    "properties": {"colour": "red", "size": "9"},
    "sharding_key": "c-4",
    "flag": 3,
}


async def send(
    client: httpx.AsyncClient,
    content: object,
    key: str = '"order-17"',
    **query: str | int,
) -> httpx.Response:
    return await client.post(
        "/topics/orders/messages", params=query, json=content, headers={"idempotency-key": key}
    )


async def stored(client: httpx.AsyncClient, topic: str = "orders") -> int:
    answer = await client.get(f"/topics/{topic}/queues")
    assert answer.status_code == 200, answer.text
    return sum(q["max_offset"] - q["min_offset"] for q in answer.json()["queues"])


def is_replay(first: httpx.Response, second: httpx.Response) -> bool:
    """Tell whether the second was answered as the first, and says so, as the first does not."""
    assert (first.status_code, second.status_code) == (201, 201), (first.text, second.text)
    assert "idempotent-replayed" not in first.headers
    assert second.json() == first.json()
    return bool(second.headers.get("idempotent-replayed") == "true")
