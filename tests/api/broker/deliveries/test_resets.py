"""Deliveries after a reset, a commit from outside, or the deletion of topic or group."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of
from support.clocks import ManualClock
from support.delivery_clients import WELL_BEFORE_ITS_TIME_SECONDS, DeliveryClient, texts
from support.group_members import held
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("offset", "expected"), [(0, ["a", "b", "c"]), (2, ["c"]), (3, [])])
async def test_a_reset_ends_what_was_handed_out(
    orders: DeliveryClient, clock: ManualClock, offset: int, expected: list[str]
) -> None:
    await orders.send("a", "b", "c")
    got = await orders.receive(2)

    reset = await orders.client.post(
        "/groups/billing/offsets:reset", json={"topic": "orders", "to": {"offset": offset}}
    )

    assert reset.is_success
    assert [(await orders.ack(one)).status_code for one in got] == [409, 409]
    assert texts(await orders.receive()) == expected


async def test_who_waits_gets_what_a_reset_brings_back(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    await orders.send("a")
    await orders.ack(*await orders.receive())
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    await orders.client.post(
        "/groups/billing/offsets:reset", json={"topic": "orders", "to": "earliest"}
    )

    assert texts(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == ["a"]


async def test_who_waits_gets_what_a_commit_from_outside_brings_back(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    await orders.send("a")
    await orders.ack(*await orders.receive())
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    assert await orders.receive() == []  # behind the other's look

    back = {"offsets": [{"topic": "orders", "queue_id": 0, "offset": 0}]}
    assert (await orders.client.put("/groups/billing/offsets", json=back)).is_success

    assert texts(await asyncio.wait_for(waiting, WELL_BEFORE_ITS_TIME_SECONDS)) == ["a"]


async def test_deleting_the_topic_ends_what_was_handed_out(orders: DeliveryClient) -> None:
    await orders.send("a")
    [one] = await orders.receive()

    await orders.client.delete("/topics/orders")

    assert (await orders.ack(one)).status_code == 409
    assert (await orders.ask()).json()["code"] == "topic-not-found"


async def test_a_topic_that_is_deleted_at_any_moment_is_told_of_or_empty(
    client: httpx.AsyncClient,
) -> None:
    for ticks in range(10):
        orders = DeliveryClient(client, topic=f"orders-{ticks}")
        await orders.create()
        asked = asyncio.create_task(orders.ask())
        for _ in range(ticks):
            await asyncio.sleep(0)

        await client.delete(f"/topics/{orders.topic}")

        assert (await asked).status_code in (200, 404)


async def test_deleting_the_group_ends_what_was_handed_out(orders: DeliveryClient) -> None:
    await orders.send("a")
    [one] = await orders.receive()

    assert (await orders.client.delete("/groups/billing")).is_success

    assert (await orders.ack(one)).json()["code"] == "group-not-found"
    await orders.create()
    assert texts(await orders.receive()) == ["a"]
    assert (await orders.ack(one)).status_code == 409


async def test_a_position_beyond_the_end_hides_nothing_that_arrives(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    """Nobody may commit it, but RocketMQ lets its clients do so, and its stores are opened here."""
    await orders.send("a", "b")
    beyond = OffsetsCommitted("billing", [CommittedOffset("orders", 0, 1_000)])
    await broker_of(app).store.change(beyond)

    assert await orders.receive() == []
    assert await orders.committed() == 2
    await orders.send("c", "d")

    assert texts(await orders.receive()) == ["c", "d"]


async def test_the_lag_counts_what_is_unfinished(orders: DeliveryClient) -> None:
    await orders.send("a", "b", "c")
    await orders.receive(2)

    offsets = (await orders.client.get("/groups/billing/offsets?topic=orders")).json()

    assert offsets["lag"] == 3
