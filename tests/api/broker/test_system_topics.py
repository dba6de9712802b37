"""System topics: a client can read them only if it says so, and cannot write to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from eruca.contract.names import HALF_TOPIC, OP_HALF_TOPIC, TIMER_TOPIC
from support.brokers import client_of, open_broker

pytestmark = pytest.mark.anyio

SYSTEM = {"include_system": "true"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a broker that holds two half messages, one of them decided."""
    async with open_broker(tmp_path) as app, client_of(app) as client:
        assert (await client.put("/topics/orders", json={})).status_code == 201
        for text in ("first", "second"):
            begun = await client.post(
                "/transactions",
                json={
                    "topic": "orders",
                    "producer_group": "shop",
                    "message": {"body": {"text": text}},
                },
            )
            assert begun.status_code == 201, begun.text
        identity = begun.json()["transaction_id"]
        committed = await client.post(
            f"/transactions/{identity}:commit", json={"producer_group": "shop"}
        )
        assert committed.status_code == 200, committed.text
        yield client


@pytest.mark.parametrize(
    "path",
    [
        f"/topics/{HALF_TOPIC}/queues",
        f"/topics/{HALF_TOPIC}/queues/0/messages?offset=0",
        f"/topics/{HALF_TOPIC}/queues/0/offset?timestamp=2026-11-21T08:00:00Z",
    ],
)
async def test_they_are_not_found_by_accident(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)

    assert (answer.status_code, answer.json()["code"]) == (404, "topic-not-found")


async def test_half_messages_and_what_decided_them_are_read_on_request(
    client: httpx.AsyncClient,
) -> None:
    queues = (await client.get(f"/topics/{HALF_TOPIC}/queues", params=SYSTEM)).json()["queues"]
    halves = await client.get(
        f"/topics/{HALF_TOPIC}/queues/0/messages", params={"offset": 0, **SYSTEM}
    )
    decided = await client.get(
        f"/topics/{OP_HALF_TOPIC}/queues/0/messages", params={"offset": 0, **SYSTEM}
    )

    assert [(queue["min_offset"], queue["max_offset"]) for queue in queues] == [(0, 2)]
    assert [
        (message["queue_offset"], message["body"]["text"]) for message in halves.json()["messages"]
    ] == [(0, "first"), (1, "second")]
    assert len(decided.json()["messages"]) == 1


async def test_a_time_leads_to_an_offset_in_them_too(client: httpx.AsyncClient) -> None:
    answer = await client.get(
        f"/topics/{HALF_TOPIC}/queues/0/offset",
        params={"timestamp": "2100-01-01T00:00:00Z", **SYSTEM},
    )

    assert answer.json()["offset"] == 2


async def test_one_that_has_never_held_anything_is_not_there(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"/topics/{TIMER_TOPIC}/queues", params=SYSTEM)

    assert answer.status_code == 404


async def test_a_queue_that_it_has_not_is_not_found(client: httpx.AsyncClient) -> None:
    answer = await client.get(
        f"/topics/{HALF_TOPIC}/queues/1/messages", params={"offset": 0, **SYSTEM}
    )

    assert (answer.status_code, answer.json()["code"]) == (404, "queue-not-found")


async def test_a_topic_of_the_users_that_is_not_there_stays_not_found(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/topics/payments/queues", params=SYSTEM)

    assert answer.status_code == 404


async def test_nothing_can_be_sent_to_them(client: httpx.AsyncClient) -> None:
    answer = await client.post(f"/topics/{HALF_TOPIC}/messages", json={"body": {"text": "x"}})

    assert answer.status_code == 403


async def test_anything_but_true_and_false_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.get(
        "/topics/orders/queues/0/messages", params={"offset": 0, "include_system": "perhaps"}
    )

    assert (answer.status_code, answer.json()["code"]) == (422, "validation-failed")
