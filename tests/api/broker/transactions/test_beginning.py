"""Transactions that begin, and that begin again."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from eruca.contract.limits import CHECKER_SIZE_MAX, REASON_SIZE_MAX, TRANSACTION_ID_SIZE_MAX
from eruca.contract.names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker
from support.clocks import ManualClock
from support.transaction_calls import BY_OPERATOR, act, begin, done, listed, new, park, pull

pytestmark = pytest.mark.anyio


async def test_beginning_again_is_harmless_until_it_is_decided(client: httpx.AsyncClient) -> None:
    receipt = await begin(client, message={"message_id": "mine"})

    again = await client.post("/transactions", json=new(message={"message_id": "mine"}))
    other = await client.post(
        "/transactions", json=new(message={"message_id": "mine", "body": {"text": "other"}})
    )
    await done(client, "mine", "commit")
    late = await client.post("/transactions", json=new(message={"message_id": "mine"}))

    assert (again.status_code, again.json()) == (200, receipt | {"repeated": True})
    assert (other.status_code, other.json()["code"]) == (409, "transaction-id-in-use")
    assert (late.status_code, late.json()["code"]) == (409, "already-decided")
    assert len(await pull(client)) == 1


@pytest.mark.parametrize(
    "field",
    [
        {"tag": "cancelled"},
        {"keys": ["k", "l"]},
        {"sharding_key": "another"},
        {"properties": {"amount": "-100"}},
        {"flag": 4},
        {"delay_seconds": 61},
        {"delay_seconds": None, "delay_level": 5},
        {"delay_seconds": None},
    ],
    ids=str,
)
async def test_beginning_again_with_anything_else_in_the_message_is_refused(
    client: httpx.AsyncClient, field: dict[str, Any]
) -> None:
    message = {
        "message_id": "mine",
        "tag": "paid",
        "keys": ["k"],
        "sharding_key": "one",
        "properties": {"amount": "100"},
        "flag": 3,
        "delay_seconds": 60,
    }
    receipt = await begin(client, message=message)

    again = await client.post("/transactions", json=new(message=message, queue_id=0))
    other = await client.post("/transactions", json=new(message=message | field))

    assert (again.status_code, again.json()) == (200, receipt | {"repeated": True})
    assert (other.status_code, other.json()["code"]) == (409, "transaction-id-in-use")


async def test_beginning_again_once_it_would_be_due_is_harmless(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    for name, deliver_at in (
        ("future", "2023-11-14T22:14:00Z"),
        ("past", "2023-11-14T22:13:00Z"),
    ):
        message = {"message_id": name, "deliver_at": deliver_at}
        receipt = await begin(client, message=message)
        clock.advance(60)

        again = await client.post("/transactions", json=new(message=message))

        assert (again.status_code, again.json()) == (200, receipt | {"repeated": True})


async def test_two_beginnings_at_the_same_time_are_one(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(
        *(client.post("/transactions", json=new(message={"message_id": "one"})) for _ in range(4)),
        act(client, "one", "commit"),
    )

    assert [answer.status_code for answer in answers] == [201, 200, 200, 200, 200]
    assert len(await pull(client)) == 1


async def test_a_transaction_that_was_decided_long_ago_is_not_begun_again(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await begin(client, message={"message_id": "old"})
    await done(client, "old", "rollback")
    store = broker_of(app).store
    store.log.by_key(
        "payments", "whatever", count_max=1, begin_ms=0, end_ms=0
    )  # the index catches up
    broker_of(app).transaction_views._log._recent.clear()

    late = await client.post("/transactions", json=new(message={"message_id": "old"}))

    assert (late.status_code, late.json()["code"]) == (409, "already-decided")


async def test_a_topic_is_created_by_beginning_where_sending_creates_it(
    client: httpx.AsyncClient,
) -> None:
    fields = new(topic="fresh", queue_id=None)

    answers = await asyncio.gather(*(client.post("/transactions", json=fields) for _ in range(2)))

    assert [answer.status_code for answer in answers] == [201, 201]
    assert {answer.json()["queue_id"] for answer in answers} <= set(range(4))
    assert (await client.get("/topics/fresh")).status_code == 200


async def test_as_many_are_pending_or_parked_as_may_be(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(client.post("/transactions", json=new()) for _ in range(12)))

    assert sorted(answer.status_code for answer in answers) == [201] * 8 + [429] * 4
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert "transactions_max" in refused.json()["detail"]
    assert "ERUCA_BROKER_TRANSACTIONS_MAX" in refused.json()["fix"]
    assert refused.headers["retry-after"]
    ids = await listed(client)
    await park(client, ids[0])
    assert (await client.post("/transactions", json=new())).status_code == 429
    await done(client, ids[0], "rollback", BY_OPERATOR)
    await begin(client)


async def test_no_consumer_sees_the_systems_topics(client: httpx.AsyncClient) -> None:
    await park(client, (await begin(client))["transaction_id"])

    for topic in (HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TOPIC):
        pulled = await client.get(f"/topics/{topic}/queues/0/messages", params={"offset": 0})
        sent = await client.post(f"/topics/{topic}/messages", json={"body": {"text": "x"}})
        begun = await client.post("/transactions", json=new(topic=topic))
        assert (pulled.status_code, sent.status_code, begun.status_code) == (404, 403, 403)


@pytest.mark.parametrize("end", ["commit", "expire", "carry"])
async def test_the_largest_half_message_that_is_taken_can_come_to_any_end(
    tmp_path: Path, end: str
) -> None:
    segment_bytes = 64 * 1024  # the smallest
    long, longest_id = "\x01" * REASON_SIZE_MAX, "\U0001f33f" * TRANSACTION_ID_SIZE_MAX

    async def begun(client: httpx.AsyncClient, size: int) -> httpx.Response:
        message = {"message_id": longest_id, "body": {"text": "x" * size}, "delay_seconds": 60}
        return await client.post("/transactions", json=new(message=message))

    async with open_broker(tmp_path, segment_bytes=segment_bytes) as app, client_of(app) as client:
        assert (await client.put("/topics/payments", json={})).is_success
        refused = await begun(client, segment_bytes - 10_000)
        sizes = [int(text) for text in re.findall(r"[0-9]+", refused.json()["detail"])]
        taken = await begun(client, segment_bytes - 10_000 - (sizes[0] - sizes[-1]))
        path = quote(longest_id)
        if end == "commit":
            ended = await act(client, path, "commit", BY_OPERATOR | {"reason": long})
        else:
            given_up = {"checks": 0, "checker": "\x01" * CHECKER_SIZE_MAX, "reason": long}
            if end == "carry":
                for _ in range(3):
                    body = {"body": {"text": "x" * 20_000}}
                    assert (await client.post("/topics/payments/messages", json=body)).is_success
                carrier = broker_of(app).transaction_carrier
                await carrier.carry_forward(broker_of(app).store.log_max_offset)
                assert carrier.carried_count == 1
            ended = await act(client, path, "expire", given_up)

    assert (refused.status_code, refused.json()["code"]) == (413, "too-large")
    assert taken.status_code == 201, taken.text
    assert ended.status_code == 200, ended.text
