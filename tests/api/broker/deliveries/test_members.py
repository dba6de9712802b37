"""Deliveries beside members of the same group: one queue has one kind of reader."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from eruca.contract.errors import UnavailableError
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of
from support.clocks import ManualClock
from support.delivery_clients import WELL_BEFORE_ITS_TIME_SECONDS, DeliveryClient, texts
from support.group_members import TestMember, held
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


async def test_a_queue_that_a_member_reads_hands_nothing_out(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=2)
    await orders.send("locked", queue_id=0)
    await orders.send("free", queue_id=1)
    member = TestMember(client, "a", group="billing")
    await member.beat()
    await member.lock(0)

    got = await orders.receive()
    await orders.ack(*got)
    empty = (await orders.ask()).json()["empty_because"]
    await member.lock(1)
    paused = (await orders.ask()).json()["empty_because"]

    assert texts(got) == ["free"]
    assert (empty, paused) == ("empty", "paused")
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)
    await member.release((0, 0))
    assert texts(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == ["locked"]


async def test_a_lock_that_could_not_be_freed_when_its_session_was_over_is_freed_later(
    orders: DeliveryClient,
    client: httpx.AsyncClient,
    app: ServiceApp,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await orders.send("a")
    member = TestMember(client, "a", group="billing")
    await member.beat()
    await member.lock(0)

    async def refuse(_: object) -> None:
        raise UnavailableError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(broker_of(app).store, "change", refuse)
        clock.advance(1_000)
        refused = await orders.ask()

    assert refused.status_code == 503
    assert texts(await orders.receive()) == ["a"]


async def test_a_member_does_not_get_a_queue_while_messages_of_it_are_out(
    orders: DeliveryClient, client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await orders.send("a")
    [one] = await orders.receive(invisible_seconds=100)
    member = TestMember(client, "a", group="billing")
    await member.beat()

    refused = (await member.lock(0)).json()
    waiting = asyncio.create_task(member.lock(0, wait_seconds=30))
    await held(app)
    await orders.ack(one)

    assert refused["locks"] == []
    [why] = refused["refused"]
    assert why["expires_in_seconds"] == pytest.approx(100)
    [lock] = (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).json()["locks"]
    assert lock["next_offset"] == 1


async def test_a_member_that_waits_gets_a_queue_whose_deliveries_a_reset_has_ended(
    orders: DeliveryClient, client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await orders.send("a")
    await orders.receive(invisible_seconds=100)
    member = TestMember(client, "a", group="billing")
    await member.beat()
    waiting = asyncio.create_task(member.lock(0, wait_seconds=30))
    await held(app)
    assert await orders.receive() == []  # behind the other's look

    reset = {"topic": "orders", "to": "latest"}
    assert (await client.post("/groups/billing/offsets:reset", json=reset)).is_success

    answer = await asyncio.wait_for(waiting, WELL_BEFORE_ITS_TIME_SECONDS)
    [lock] = answer.json()["locks"]
    assert lock["next_offset"] == 1


async def test_a_member_gets_a_queue_whose_deliveries_have_run_out(
    orders: DeliveryClient, client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await orders.send("a", "b")
    a, b = await orders.receive(invisible_seconds=10)
    await orders.ack(b)
    member = TestMember(client, "a", group="billing")
    clock.advance(10)
    await member.beat()

    [lock] = (await member.lock(0)).json()["locks"]

    assert lock["next_offset"] == 0
    assert (await orders.ack(a)).status_code == 409
