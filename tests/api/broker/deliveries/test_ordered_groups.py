"""Deliveries in ordered groups: one message of each key is out at a time."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from support.clocks import ManualClock
from support.delivery_clients import DeliveryClient, texts
from support.group_members import held
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


async def test_in_an_ordered_group_one_message_of_each_key_is_out_at_a_time(
    client: httpx.AsyncClient,
) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=True)
    for text in ("a1", "a2", "b1", "a3", "b2"):
        await orders.send(text, sharding_key=text[0])

    first = await orders.receive()
    blocked = (await orders.ask()).json()["empty_because"]
    await orders.ack(first[0])
    second = await orders.receive()
    await orders.ack(*second, first[1])
    third = await orders.receive()

    assert [texts(got) for got in (first, second, third)] == [["a1", "b1"], ["a2"], ["a3", "b2"]]
    assert blocked == "blocked"
    await orders.ack(*third)
    assert await orders.committed() == 5


async def test_a_group_that_becomes_ordered_is_so_from_the_next_answer_on(
    client: httpx.AsyncClient,
) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=False)
    for text in ("a1", "a2"):
        await orders.send(text, sharding_key="a")
    unordered = await orders.receive()
    await orders.ack(*unordered)

    await orders.create(ordered=True)
    for text in ("a3", "a4"):
        await orders.send(text, sharding_key="a")
    ordered = await orders.receive()

    assert [texts(got) for got in (unordered, ordered)] == [["a1", "a2"], ["a3"]]


async def test_a_message_given_up_holds_up_its_key_and_no_other(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=True)
    for text in ("a1", "b1", "a2", "b2"):
        await orders.send(text, sharding_key=text[0])
    a1, b1 = await orders.receive()

    await orders.nack(a1, delay_seconds=30)
    await orders.ack(b1)

    assert texts(await orders.receive()) == ["b2"]
    clock.advance(30)
    [again] = await orders.receive()
    assert texts([again]) == ["a1"]
    await orders.ack(again)
    assert texts(await orders.receive()) == ["a2"]


async def test_keys_of_a_deleted_topic_are_not_those_of_a_later_one_of_its_name(
    client: httpx.AsyncClient,
) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=True)
    await orders.send("old", sharding_key="a")
    assert texts(await orders.receive(1)) == ["old"]
    assert await orders.receive() == []  # for that its key has been looked up

    assert (await client.delete("/topics/orders")).is_success
    await orders.create(ordered=False)
    await orders.send("first", sharding_key="b")
    assert texts(await orders.receive()) == ["first"]
    await orders.create(ordered=True)
    await orders.send("second", sharding_key="b")

    assert await orders.receive() == []


async def test_without_keys_an_ordered_queue_goes_one_by_one(client: httpx.AsyncClient) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=True)
    await orders.send("1", "2", "3")

    seen = []
    for _ in range(3):
        got = await orders.receive()
        assert await orders.receive() == []
        await orders.ack(*got)
        seen += texts(got)

    assert seen == ["1", "2", "3"]


async def test_a_key_that_is_blocked_is_free_again_for_who_waits(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=True)
    await orders.send("a1", "a2", sharding_key="a")
    [a1] = await orders.receive()
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    await orders.ack(a1)

    assert texts(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == ["a2"]
