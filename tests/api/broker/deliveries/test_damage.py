"""Deliveries of messages that cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from support.brokers import rot, rot_beyond_reading, rot_queue_offset
from support.clocks import ManualClock
from support.delivery_clients import DeliveryClient, texts
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("place", [0, 1 << 62])
async def test_a_message_that_tells_another_place_than_its_own_holds_up_no_other(
    app: ServiceApp, orders: DeliveryClient, place: int
) -> None:
    await orders.send("first", "rotten", "last")
    rot_queue_offset(app, b"rotten", place)

    handed_out = [one for _ in range(3) for one in await orders.receive()]

    assert [one["message"]["queue_offset"] for one in handed_out] == [0, 1, 2]
    assert texts([handed_out[0], handed_out[2]]) == ["first", "last"]
    assert_damaged(handed_out[1])


def assert_damaged(delivery: dict[str, Any]) -> None:
    """Assert that a message has nothing but its place, and what is wrong with it."""
    message = delivery["message"]
    assert message["damage"]
    assert (message["body"], message["properties"], message["keys"]) == (None, {}, [])
    assert message["log_offset"] > 0


async def test_a_message_that_has_rotted_is_handed_out_as_damaged_and_its_dead_letter_says_so(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    orders = DeliveryClient(client)
    await orders.create(retries_max=0)
    await orders.send("rotten", "sound")
    rot(app, b"rotten")

    handed_out = [*await orders.receive(), *await orders.receive()]
    given_up = await orders.nack(*handed_out)
    letters = await client.get("/groups/billing/dead-letters")

    assert_damaged(handed_out[0])
    assert texts(handed_out[1:]) == ["sound"]
    assert given_up.is_success, given_up.text
    damaged, sound = letters.json()["dead_letters"]
    assert (damaged["reason"], sound["reason"]) == ("damaged", "failed")
    place = (damaged["origin_topic"], damaged["origin_queue_id"], damaged["origin_offset"])
    message = handed_out[0]["message"]
    assert place == ("orders", message["queue_id"], message["queue_offset"])
    assert damaged["last_error"] == f"at log offset {message['log_offset']}: {message['damage']}"
    assert await orders.receive() == []

    path = "/groups/billing/dead-letters:redrive"
    ids = [damaged["dead_letter_id"]]
    [outcome] = (await client.post(path, json={"ids": ids})).json()["outcomes"]
    assert outcome["outcome"] == "skipped"
    assert outcome["detail"] == "its message was damaged, so nothing can be sent"


@pytest.mark.parametrize("is_ordered", [False, True], ids=["concurrent", "ordered"])
async def test_what_cannot_be_read_any_more_when_its_time_is_over_holds_up_none_behind_it(
    app: ServiceApp, client: httpx.AsyncClient, clock: ManualClock, is_ordered: bool
) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=is_ordered)
    for number, text in enumerate(("rotten", "second", "third")):
        await orders.send(text, sharding_key=str(number))
    assert len(await orders.receive(invisible_seconds=10)) == 3
    rot_beyond_reading(app, b"rotten")
    clock.advance(10)

    handed_out = [one for _ in range(3) for one in await orders.receive(1)]

    assert_damaged(handed_out[0])
    assert texts(handed_out[1:]) == ["second", "third"]
    assert (await orders.ack(*handed_out)).is_success
    assert await orders.committed() == 3


async def test_who_waits_gets_a_message_that_cannot_be_read_any_more_as_damaged(
    app: ServiceApp, orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("rotten", "second")
    assert len(await orders.receive(invisible_seconds=10)) == 2
    rot_beyond_reading(app, b"rotten")
    clock.advance(10)

    async with asyncio.timeout(PATIENCE_SECONDS):
        [one] = await orders.receive(1, wait_seconds=30)
        [other] = await orders.receive(1, wait_seconds=30)

    assert_damaged(one)
    assert texts([other]) == ["second"]


@pytest.mark.parametrize("is_given_up", [False, True], ids=["not acknowledged", "given up"])
async def test_what_cannot_be_read_any_more_leaves_a_dead_letter_that_says_so(
    app: ServiceApp, client: httpx.AsyncClient, clock: ManualClock, is_given_up: bool
) -> None:
    orders = DeliveryClient(client)
    await orders.create(retries_max=0)
    await orders.send("rotten", "sound")
    handed_out = await orders.receive(invisible_seconds=10)
    rot_beyond_reading(app, b"rotten")

    if is_given_up:
        given_up = await orders.nack(*handed_out)
        assert given_up.is_success, given_up.text
    clock.advance(10)

    assert await orders.receive() == []
    letters = await client.get("/groups/billing/dead-letters")
    reasons = [letter["reason"] for letter in letters.json()["dead_letters"]]
    assert reasons == ["damaged", "failed" if is_given_up else "not_acknowledged"]
    assert await orders.committed() == 2
