"""Requests for deliveries that wait, and their answers."""

from __future__ import annotations

import asyncio

import pytest

from eruca.contract.deliveries import DeliveryRequest
from eruca_chassis.app import ServiceApp
from eruca_chassis.asgi import ClientGoneError
from support.brokers import broker_of
from support.delivery_clients import WELL_BEFORE_ITS_TIME_SECONDS, DeliveryClient, texts
from support.group_members import held
from support.patience import PATIENCE_SECONDS
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_who_waits_gets_what_arrives(orders: DeliveryClient, app: ServiceApp) -> None:
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    await orders.send("a")

    assert texts(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == ["a"]


async def test_who_waits_gets_what_arrives_in_a_queue_that_is_added_meanwhile(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    queues = {"read_queue_count": 2, "write_queue_count": 2}
    assert (await orders.client.put("/topics/orders", json=queues)).is_success
    assert await orders.receive() == []  # behind the other's look
    await orders.send("a", queue_id=1)

    assert texts(await asyncio.wait_for(waiting, WELL_BEFORE_ITS_TIME_SECONDS)) == ["a"]


async def test_of_many_who_wait_one_gets_a_message(orders: DeliveryClient, app: ServiceApp) -> None:
    waiting = [asyncio.create_task(orders.receive(wait_seconds=30)) for _ in range(5)]
    await held(app, 5)

    await orders.send("a")
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await orders.send("b", "c", "d", "e")
    await until(lambda: broker_of(app).deliveries.counts.handed_out == 5)

    assert [texts(task.result()) for task in done] == [["a"]]
    assert len(pending) == 4
    broker_of(app).group_work.watchers.release_all()
    rest = [text for answer in await asyncio.gather(*pending) for text in texts(answer)]
    assert sorted(rest) == ["b", "c", "d", "e"]


async def test_who_waits_gets_what_was_given_up_at_once(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    await orders.send("a")
    [one] = await orders.receive()
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    await orders.nack(one, delay_seconds=0)

    [again] = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert again["attempt"] == 2


async def test_a_wait_without_a_message_ends_in_time_and_says_so(orders: DeliveryClient) -> None:
    answer = (await orders.ask(wait_seconds=0.05)).json()

    assert answer["deliveries"] == []
    assert answer["empty_because"] == "empty"


async def test_who_waits_for_a_topic_that_is_deleted_is_told(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    waiting = asyncio.create_task(orders.ask(wait_seconds=30))
    await held(app)

    await orders.client.delete("/topics/orders")

    assert (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).json()["code"] == "topic-not-found"


async def test_who_waits_for_a_topic_that_is_created_again_gets_what_arrives(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    await orders.send("of no interest", "nor this", tag="b")
    waiting = asyncio.create_task(orders.receive(wait_seconds=30, filter="a"))
    await held(app)

    async with broker_of(app).group_work.changes.turn("billing"):  # as others' requests have it
        assert (await orders.client.delete("/topics/orders")).is_success
        queues = {"read_queue_count": 1, "write_queue_count": 1}
        assert (await orders.client.put("/topics/orders", json=queues)).is_success
        await orders.send("new", tag="a")

    assert texts(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == ["new"]


async def test_who_has_left_meanwhile_is_handed_nothing(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    left = asyncio.Event()

    async def leaving() -> dict[str, object]:
        await left.wait()
        return {"type": "http.disconnect"}

    wanted = DeliveryRequest(topic="orders", wait_seconds=30)
    waiting = asyncio.create_task(broker_of(app).deliveries.receive("billing", wanted, leaving))
    await held(app)
    left.set()
    with pytest.raises(ClientGoneError):
        await waiting

    await orders.send("a")

    [one] = await orders.receive()
    assert one["attempt"] == 1


async def test_who_waits_while_the_group_is_paused_goes_on_when_it_does(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    await orders.send("a")
    await orders.create(consume_enabled=False)
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    await orders.create(consume_enabled=True)

    assert texts(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == ["a"]
