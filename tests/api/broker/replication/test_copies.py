"""Copies: a send may ask for some, and its receipt says how many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from support.brokers import RECORDS, batch, client_of, open_broker, record

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with open_broker(tmp_path) as app, client_of(app) as client:
        yield client


async def test_a_broker_without_replicas_has_one_copy(client: httpx.AsyncClient) -> None:
    message = {"body": {"text": "one"}}
    sent = await client.post("/topics/orders/messages", params={"copies": 1}, json=message)
    assert (sent.status_code, sent.json()["copies"]) == (201, 1)
    delayed = await client.post("/topics/orders/messages", json=message | {"delay_seconds": 60})
    assert delayed.json()["copies"] == 1

    records = await client.post(
        "/topics/orders/queues/0/records", content=batch([record("orders")]), headers=RECORDS
    )

    assert records.json()["copies"] == 1


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/topics/orders/messages", b'{"body": {"text": "never"}}', {}),
        ("/topics/orders/queues/0/records", batch([record("orders")]), RECORDS),
    ],
)
async def test_a_broker_without_replicas_refuses_more_copies_for_good(
    client: httpx.AsyncClient, path: str, body: bytes, headers: dict[str, str]
) -> None:
    await client.put("/topics/orders", json={})

    refused = await client.post(path, params={"copies": 2}, content=body, headers=headers)

    assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")
    assert refused.json()["errors"][0]["pointer"] == "/query/copies"
    assert "has no replicas; found 2" in refused.json()["detail"]
    queues = (await client.get("/topics/orders/queues")).json()["queues"]
    assert {queue["max_offset"] for queue in queues} == {0}
    invalid = await client.post(path, params={"copies": 0}, content=body, headers=headers)
    assert invalid.status_code == 422


async def test_a_broker_without_replicas_hands_over_to_nobody(client: httpx.AsyncClient) -> None:
    refused = await client.post("/replication/switch", json={})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
