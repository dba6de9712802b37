"""Calls of a broker about transactions."""

from __future__ import annotations

from typing import Any

import httpx

GROUP = "orders"
BY_PRODUCER = {"producer_group": GROUP}
BY_OPERATOR = {"by": "operator", "reason": "the money was there"}


def new(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    message = {"body": {"text": "pay"}} | fields.pop("message", {})
    return {
        "topic": "payments",
        "queue_id": 1,
        "producer_group": GROUP,
        "message": message,
    } | fields


async def begin(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    answer = await client.post("/transactions", json=new(**fields))
    assert answer.status_code == 201, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


async def act(
    client: httpx.AsyncClient, transaction_id: str, verb: str, body: object = BY_PRODUCER
) -> httpx.Response:
    return await client.post(f"/transactions/{transaction_id}:{verb}", json=body)


async def done(
    client: httpx.AsyncClient, transaction_id: str, verb: str, body: object = BY_PRODUCER
) -> dict[str, Any]:
    answer = await act(client, transaction_id, verb, body)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def pull(client: httpx.AsyncClient, queue_id: int = 1) -> list[dict[str, Any]]:
    answer = await client.get(
        f"/topics/payments/queues/{queue_id}/messages", params={"offset": 0, "count_max": 100}
    )
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


async def shown(client: httpx.AsyncClient, transaction_id: str) -> dict[str, Any]:
    answer = await client.get(f"/transactions/{transaction_id}")
    assert answer.status_code == 200, answer.text
    detail: dict[str, Any] = answer.json()
    return detail


async def park(client: httpx.AsyncClient, transaction_id: str, checks: int = 1) -> dict[str, Any]:
    for number in range(1, checks + 1):
        await done(client, transaction_id, "check", {"number": number, "checker": "c"})
    return await done(client, transaction_id, "expire", {"checks": checks, "checker": "c"})


async def listed(client: httpx.AsyncClient, **query: str | int) -> list[str]:
    ids: list[str] = []
    while True:
        answer = await client.get("/transactions", params=query)
        assert answer.status_code == 200, answer.text
        ids += [item["transaction_id"] for item in answer.json()["transactions"]]
        if (cursor := answer.json()["next_cursor"]) is None:
            return ids
        query["cursor"] = cursor
