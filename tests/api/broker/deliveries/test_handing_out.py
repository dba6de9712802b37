"""Deliveries: a message is one client's for a time."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest

from eruca.contract.records import BLANK_SIZE_MIN
from eruca_chassis.app import ServiceApp
from support.brokers import client_of, open_broker
from support.clocks import ManualClock
from support.delivery_clients import DeliveryClient, texts
from support.group_members import held
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


async def test_a_message_is_one_clients_until_its_time_is_over(
    orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("a", "b", "c")

    first = await orders.receive(2, invisible_seconds=60)
    second = await orders.receive(invisible_seconds=60)
    nothing = (await orders.ask()).json()
    clock.advance(60)
    again = await orders.receive(2)

    assert (texts(first), texts(second)) == (["a", "b"], ["c"])
    assert nothing == {
        "deliveries": [],
        "empty_because": "empty",
        "retry_after_seconds": pytest.approx(60),
    }
    assert texts(again) == ["a", "b"]
    assert [one["attempt"] for one in first + again] == [1, 1, 2, 2]


async def test_what_was_acknowledged_is_never_redelivered(
    orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("a", "b", "c")
    a, b, c = await orders.receive()

    assert (await orders.ack(a, c)).status_code == 204
    assert await orders.committed() == 1
    clock.advance(1_000)
    [again] = await orders.receive()
    assert (await orders.ack(again)).status_code == 204

    assert texts([again]) == ["b"]
    assert again["handle"] != b["handle"]
    assert await orders.committed() == 3
    clock.advance(1_000)
    assert await orders.receive() == []


async def test_300_messages_come_once_each_and_never_more_than_32_at_a_time(
    client: httpx.AsyncClient,
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=4)
    for number in range(4):
        await orders.send(*(f"{number}-{n}" for n in range(75)), queue_id=number)

    seen: list[str] = []
    while got := await orders.receive():
        assert len(got) <= 32
        assert (await orders.ack(*got)).status_code == 204
        seen += texts(got)

    assert sorted(seen) == sorted(f"{q}-{n}" for q in range(4) for n in range(75))


async def test_queues_take_turns(client: httpx.AsyncClient) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=3)
    for queue_id in range(3):
        await orders.send("x", "y", queue_id=queue_id)

    got = [one for _ in range(3) for one in await orders.receive(1)]

    assert [one["message"]["queue_id"] for one in got] == [0, 1, 2]


async def test_one_request_may_get_messages_of_several_queues(client: httpx.AsyncClient) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=3)
    for queue_id in range(3):
        await orders.send("x", queue_id=queue_id)

    got = await orders.receive(3)

    assert {one["message"]["queue_id"] for one in got} == {0, 1, 2}
    assert (await orders.ack(*got)).status_code == 204


async def test_a_new_group_starts_as_the_request_says_or_at_the_end(
    orders: DeliveryClient, client: httpx.AsyncClient
) -> None:
    await orders.send("old")

    assert await DeliveryClient(client, "late").receive() == []
    assert texts(await DeliveryClient(client, "early").receive(start="earliest")) == ["old"]
    await orders.send("new")
    assert texts(await DeliveryClient(client, "late").receive(start="earliest")) == ["new"]


async def test_groups_do_not_disturb_each_other(
    orders: DeliveryClient, client: httpx.AsyncClient
) -> None:
    other = DeliveryClient(client, "other")
    await other.create()
    await orders.send("a")

    [mine], [theirs] = await orders.receive(), await other.receive()

    assert (await orders.ack(theirs)).json()["code"] == "stale-handle"
    assert (await orders.ack(mine)).status_code == 204
    assert (await other.ack(theirs)).status_code == 204


async def test_at_the_same_time_nobody_gets_what_another_has(orders: DeliveryClient) -> None:
    await orders.send(*(str(n) for n in range(40)))

    answers = await asyncio.gather(*(orders.receive(3) for _ in range(16)))

    got = [text for answer in answers for text in texts(answer)]
    assert sorted(got, key=int) == [str(n) for n in range(40)]


async def test_of_those_who_ask_at_the_same_time_each_gets_as_many_as_it_asked_for(
    orders: DeliveryClient,
) -> None:
    await orders.send(*(str(n) for n in range(12)))

    answers = await asyncio.gather(*(orders.receive(count) for count in (1, 2, 3, 4, 5)))

    assert [len(answer) for answer in answers] == [1, 2, 3, 4, 2]
    assert [int(text) for answer in answers for text in texts(answer)] == list(range(12))


async def test_those_who_ask_for_different_things_at_the_same_time_are_told_apart(
    client: httpx.AsyncClient,
) -> None:
    orders = DeliveryClient(client)
    await orders.create()
    await orders.send("a", "b")
    other = DeliveryClient(client, topic="others")
    await other.create()
    await other.send("x", "y")

    answers = await asyncio.gather(
        orders.ask(1, invisible_seconds=10),
        orders.ask(1, invisible_seconds=60),
        orders.ask(1, filter="red"),
        other.ask(5),
        DeliveryClient(client, topic="missing").ask(),
    )

    assert [answer.status_code for answer in answers] == [200, 200, 409, 200, 404]
    assert texts(answers[0].json()["deliveries"]) == ["a"]
    assert texts(answers[1].json()["deliveries"]) == ["b"]
    assert texts(answers[3].json()["deliveries"]) == ["x", "y"]
    first, second = (answers[n].json()["deliveries"][0]["visible_at"] for n in range(2))
    assert first < second


async def test_large_messages_for_many_at_the_same_time_leave_nobody_out(
    orders: DeliveryClient,
) -> None:
    for n in range(4):
        await orders.send(str(n) * 3_900_000)

    answers = await asyncio.gather(*(orders.receive(1) for _ in range(5)))

    assert sorted(len(answer) for answer in answers) == [0, 1, 1, 1, 1]


async def test_those_who_wait_for_large_messages_leave_nobody_out(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    waiting = [asyncio.create_task(orders.receive(1, wait_seconds=20)) for _ in range(4)]
    await held(app, 4)

    for n in range(4):
        await orders.send(str(n) * 3_900_000)

    assert sorted(texts(one)[0][0] for one in await asyncio.gather(*waiting)) == list("0123")


async def test_large_messages_share_out_the_room_of_an_answer(orders: DeliveryClient) -> None:
    for n in range(3):
        await orders.send(str(n) * 3_900_000)

    sizes = [len(await orders.receive()) for _ in range(3)]

    assert sum(sizes) == 3


async def test_a_group_that_meets_a_topic_where_a_segment_begins_is_handed_its_messages(
    tmp_path: Path,
) -> None:
    segment_bytes = 64 * 1024
    async with open_broker(tmp_path, segment_bytes=segment_bytes) as app, client_of(app) as client:
        orders = DeliveryClient(client)
        await orders.create()
        path = "/topics/orders/messages?queue_id=0"
        too_large = await client.post(path, json={"body": {"text": "x" * segment_bytes}})
        [taken, _] = map(int, re.findall(r"[0-9]+", too_large.json()["detail"]))
        filling = segment_bytes - (taken - segment_bytes) - BLANK_SIZE_MIN
        sent = await client.post(path, json={"body": {"text": "x" * filling}})

        async with asyncio.timeout(PATIENCE_SECONDS):
            deliveries = await orders.receive()

    assert sent.status_code == 201, sent.text
    assert [len(text) for text in texts(deliveries)] == [filling]
