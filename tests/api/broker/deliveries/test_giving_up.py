"""Nacked deliveries: when they are redelivered, and when they become dead letters."""

from __future__ import annotations

import httpx
import pytest

from eruca_broker.processors.deliveries import deliveries
from support.clocks import ManualClock
from support.delivery_clients import DeliveryClient, texts

pytestmark = pytest.mark.anyio


async def test_a_message_given_up_comes_after_the_delay_asked_for(
    orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("a", "b")
    a, b = await orders.receive()

    nacked = await orders.nack(a, delay_seconds=20)

    [result] = nacked.json()["results"]
    assert (result["outcome"], result["attempts"]) == ("retry", 1)
    assert (await orders.ack(a)).status_code == 409
    assert (await orders.ask()).json()["retry_after_seconds"] == pytest.approx(20)
    clock.advance(20)
    [again] = await orders.receive()
    assert (texts([again]), again["attempt"]) == (["a"], 2)
    assert (await orders.ack(b, again)).status_code == 204


async def test_without_a_delay_the_groups_policy_says_when_it_comes(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    orders = DeliveryClient(client)
    await orders.create(retry_policy={"kind": "customized", "delays_seconds": [3, 7]})
    await orders.send("a")

    waits = []
    for _ in range(3):
        [one] = await orders.receive()
        await orders.nack(one)
        waits.append((await orders.ask()).json()["retry_after_seconds"])
        clock.advance(waits[-1])

    assert waits == [pytest.approx(3), pytest.approx(7), pytest.approx(7)]


async def test_without_a_policy_the_delay_levels_do(
    orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("a")

    waits = []
    for _ in range(3):
        [one] = await orders.receive()
        await orders.nack(one)
        waits.append((await orders.ask()).json()["retry_after_seconds"])
        clock.advance(waits[-1])

    assert waits == [pytest.approx(10), pytest.approx(30), pytest.approx(60)]


async def test_given_up_once_too_often_it_is_a_dead_letter(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    orders = DeliveryClient(client)
    await orders.create(retries_max=1)
    await orders.send("poison", "fine", tag="T", keys=["k"])
    poison, fine = await orders.receive()
    await orders.nack(poison, delay_seconds=0)
    [again] = await orders.receive()

    dead = await orders.nack(again, reason="unreadable", error="no such aircraft")

    assert dead.json()["results"] == [{"outcome": "dead_letter", "attempts": 2, "visible_at": None}]
    clock.advance(10_000)
    [rest] = await orders.receive()
    await orders.ack(rest)
    assert texts([rest]) == ["fine"]
    assert await orders.committed() == 2
    [letter] = (await client.get("/groups/billing/dead-letters")).json()["dead_letters"]
    assert letter["origin_topic"] == "orders"
    assert (letter["origin_queue_id"], letter["origin_offset"]) == (0, 0)
    assert (letter["reason"], letter["last_error"]) == ("unreadable", "no such aircraft")
    assert letter["attempts"] == 2
    assert letter["message_id"] == poison["message"]["message_id"]
    assert (fine["message"]["tag"], fine["message"]["keys"]) == ("T", ["k"])


async def test_what_would_be_too_much_of_dead_letters_is_refused_whole_and_goes_in_parts(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "GIVEN_UP_SIZE_MAX", 3_000)
    orders = DeliveryClient(client)
    await orders.create(retries_max=0)
    await orders.send(*("x" * 2_000 for _ in range(3)))
    given = await orders.receive()

    refused = await orders.nack(*given)

    assert refused.status_code == 413
    assert (refused.json()["code"], refused.json()["fix"]) == (
        "too-large",
        "reject fewer messages in one request",
    )
    assert (await client.get("/groups/billing/dead-letters")).json()["dead_letters"] == []
    for one in given:
        assert (await orders.nack(one)).json()["results"][0]["outcome"] == "dead_letter"
    assert len((await client.get("/groups/billing/dead-letters")).json()["dead_letters"]) == 3


async def test_a_changed_limit_of_retries_counts_for_what_is_out_already(
    orders: DeliveryClient,
) -> None:
    await orders.send("poison")
    [poison] = await orders.receive()

    await orders.create(retries_max=0)
    dead = await orders.nack(poison)

    assert dead.json()["results"][0]["outcome"] == "dead_letter"


async def test_never_acknowledged_it_is_a_dead_letter_too(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    orders = DeliveryClient(client)
    await orders.create(retries_max=2)
    await orders.send("a")

    attempts = []
    for _ in range(3):
        [one] = await orders.receive(invisible_seconds=10)
        attempts.append(one["attempt"])
        clock.advance(10)
    assert await orders.receive() == []

    assert attempts == [1, 2, 3]
    [letter] = (await client.get("/groups/billing/dead-letters")).json()["dead_letters"]
    assert (letter["reason"], letter["attempts"]) == ("not_acknowledged", 3)
    assert await orders.committed() == 1


async def test_a_redriven_dead_letter_comes_as_if_it_were_new(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    orders = DeliveryClient(client)
    await orders.create(retries_max=0)
    await orders.send("a")
    [one] = await orders.receive()
    await orders.nack(one)

    redriven = await client.post("/groups/billing/dead-letters:redrive", json={"ids": [0]})

    assert redriven.json()["outcomes"][0]["outcome"] == "redriven"
    [again] = await orders.receive()
    assert (texts([again]), again["attempt"]) == (["a"], 1)
