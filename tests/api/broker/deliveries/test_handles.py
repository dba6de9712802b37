"""Deliveries: no handle counts longer than it should."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from support.brokers import client_of, open_broker
from support.clocks import ManualClock
from support.delivery_clients import DeliveryClient, texts
from support.times import moment

pytestmark = pytest.mark.anyio


async def test_an_expired_handle_is_gone_and_a_superseded_one_a_conflict(
    orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("a")
    [first] = await orders.receive(invisible_seconds=10)

    clock.advance(10)
    expired = await orders.ack(first)
    [second] = await orders.receive()
    superseded = await orders.ack(first)
    acked = await orders.ack(second)
    done = await orders.ack(second)

    assert (expired.status_code, expired.json()["code"]) == (410, "expired-handle")
    assert (superseded.status_code, superseded.json()["code"]) == (409, "stale-handle")
    assert acked.status_code == 204
    assert (done.status_code, done.json()["code"]) == (409, "stale-handle")


@pytest.mark.parametrize("what", ["ack", "nack", "extend"])
async def test_one_bad_handle_spoils_the_whole_request(
    orders: DeliveryClient, clock: ManualClock, what: str
) -> None:
    await orders.send("a", "b", "c")
    [late] = await orders.receive(1, invisible_seconds=5)
    [done, good] = await orders.receive(invisible_seconds=100)
    await orders.ack(done)
    clock.advance(5)
    act = getattr(orders, what)

    expired = await act(good, late)
    both = await act(good, late, done)

    assert expired.status_code == 410
    assert [error["pointer"] for error in expired.json()["errors"]] == ["/body/handles/1"]
    assert both.status_code == 409
    pointers = [error["pointer"] for error in both.json()["errors"]]
    assert pointers == ["/body/handles/1", "/body/handles/2"]
    assert (await orders.ack(good)).status_code == 204


async def test_a_handle_that_several_acknowledge_at_the_same_time_counts_once(
    orders: DeliveryClient,
) -> None:
    await orders.send("a", "b", "c")
    a, b, c = await orders.receive()

    answers = await asyncio.gather(
        orders.ack(a), orders.ack(a, b), orders.ack(c), orders.ack(c), orders.ack(b)
    )

    assert [answer.status_code for answer in answers] == [204, 409, 204, 409, 204]
    assert "is finished" in answers[1].json()["detail"]
    assert await orders.committed() == 3


async def test_extending_keeps_the_handle_and_the_message(
    orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("a")
    [one] = await orders.receive(invisible_seconds=10)

    clock.advance(9)
    extended = await orders.extend(one, invisible_seconds=30)
    clock.advance(29)

    assert extended.status_code == 200
    assert moment(extended.json()["visible_at"]) > moment(one["visible_at"])
    assert await orders.receive() == []
    assert (await orders.ack(one)).status_code == 204


async def test_less_time_can_be_asked_for_too(orders: DeliveryClient, clock: ManualClock) -> None:
    await orders.send("a")
    [one] = await orders.receive(invisible_seconds=1_000)

    await orders.extend(one, invisible_seconds=1)
    clock.advance(1)

    assert texts(await orders.receive()) == ["a"]


@pytest.mark.parametrize(
    "handle", ["", "x", "AAAA", "a b", "é", "x" * 2_000, "eyJ0ZXN0IjoxfQ", "----"]
)
async def test_what_is_no_handle_is_refused(orders: DeliveryClient, handle: str) -> None:
    for what in ("ack", "nack", "extend"):
        answer = await orders.client.post(
            f"/groups/billing/deliveries:{what}", json={"handles": [handle]}
        )

        assert (answer.status_code, answer.json()["code"]) == (422, "validation-failed")


async def test_a_handle_of_another_broker_is_refused(
    orders: DeliveryClient, tmp_path: Path
) -> None:
    async with open_broker(tmp_path / "other", name="broker-b") as app, client_of(app) as client:
        other = DeliveryClient(client)
        await other.create()
        await other.send("a")
        [theirs] = await other.receive()
    await orders.send("a")
    await orders.receive()

    refused = await orders.ack(theirs)

    assert refused.status_code == 409
    assert "broker-b" in refused.json()["detail"]


async def test_a_handle_given_twice_is_refused(orders: DeliveryClient) -> None:
    await orders.send("a")
    [one] = await orders.receive()

    assert (await orders.ack(one, one)).status_code == 422
    assert (await orders.ack(one)).status_code == 204


async def test_a_group_nobody_knows_has_no_handles(client: httpx.AsyncClient) -> None:
    answer = await client.post("/groups/nobody/deliveries:ack", json={"handles": ["x" * 8]})

    assert answer.status_code in (404, 422)


async def test_handles_survive_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    async with open_broker(tmp_path / "again", clock) as app, client_of(app) as client:
        orders = DeliveryClient(client)
        await orders.create()
        await orders.send("a", "b", "c", "d")
        a, b, c, d = await orders.receive(invisible_seconds=50)
        await orders.ack(b)
        await orders.nack(c, delay_seconds=20)
        await orders.extend(d, invisible_seconds=100)

    clock.advance(20)
    async with open_broker(tmp_path / "again", clock) as app, client_of(app) as client:
        orders = DeliveryClient(client)
        assert await orders.committed() == 0
        assert texts(await orders.receive(invisible_seconds=60)) == ["c"]
        assert (await orders.ack(b)).status_code == 409
        assert (await orders.ack(a, d)).status_code == 204
        assert await orders.committed() == 2
        clock.advance(60)
        [again] = await orders.receive()
        assert (texts([again]), again["attempt"]) == (["c"], 3)
