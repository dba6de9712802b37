"""Messages that are delivered later: sent, listed over all brokers, recalled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import eruca
from eruca.contract.errors import AlreadyDeliveredError, ScheduledNotFoundError
from eruca.contract.properties import BODY_FORMAT
from support.received import received

pytestmark = pytest.mark.anyio


async def test_a_delayed_message_comes_when_it_is_due(
    client: eruca.AsyncClient, topic: str
) -> None:
    due = datetime.now(UTC) + timedelta(seconds=0.4)
    async with client.producer() as producer:
        later = await producer.send(eruca.Message(topic, "later", deliver_at=due))
        sooner = await producer.send(eruca.Message(topic, "sooner", delay_seconds=0.1))
        now = await producer.send(eruca.Message(topic, "now"))

    stored_at = {m.text(): m.stored_at for m in await received(client, topic, 3)}
    assert sorted(stored_at) == ["later", "now", "sooner"]
    assert (later.queue_offset, sooner.queue_offset, now.queue_offset) == (None, None, 0)
    assert later.deliver_at is not None
    assert timedelta(0) <= later.deliver_at - due < timedelta(milliseconds=1)
    assert sooner.deliver_at is not None
    assert sooner.deliver_at - sooner.stored_at <= timedelta(seconds=0.1)
    assert stored_at["sooner"] >= sooner.deliver_at
    assert stored_at["later"] >= later.deliver_at
    assert now.deliver_at is None


async def test_a_json_message_stays_json_on_every_way_in(
    client: eruca.AsyncClient, topic: str
) -> None:
    value = {"order": 17}
    messages = [eruca.Message.json(topic, value, delay_seconds=delay) for delay in (None, 0.1)]
    async with (
        client.producer() as producer,
        client.transaction_producer(topic, check=lambda _: "commit") as transactions,
    ):
        for message in messages:
            await producer.send(message)
        await producer.send_many(messages)
        for message in messages:
            async with transactions.transaction(message):
                pass

    came = await received(client, topic, 6)
    assert [m.body for m in came] == [b'{"order":17}'] * 6
    assert [m.system_properties.get(BODY_FORMAT) for m in came] == ["json"] * 6


async def test_a_delayed_message_is_redelivered_until_it_is_finished(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as producer:
        sent = await producer.send(eruca.Message(topic, "later", delay_seconds=0.2))
    consumer = client.simple_consumer(topic, topic, start="earliest")

    deliveries: list[eruca.Delivery] = []
    for invisible_seconds in (1, 1, 60):
        deliveries += await consumer.receive(wait_seconds=20, invisible_seconds=invisible_seconds)
    await consumer.ack(deliveries[-1])

    assert [(d.message.message_id, d.attempt) for d in deliveries] == [
        (sent.message_id, attempt) for attempt in (1, 2, 3)
    ]
    assert sent.deliver_at is not None
    assert deliveries[0].message.stored_at >= sent.deliver_at
    assert await consumer.receive(wait_seconds=0) == []


async def test_a_time_that_has_passed_delays_nothing(client: eruca.AsyncClient, topic: str) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    async with client.producer() as producer:
        result = await producer.send(eruca.Message(topic, "x", deliver_at=past))

    assert (result.queue_offset, result.deliver_at) == (0, None)


async def test_a_delay_level_is_rocketmqs(client: eruca.AsyncClient, topic: str) -> None:
    async with client.producer() as producer:
        result = await producer.send(eruca.Message(topic, "x", delay_level=3))

    assert result.deliver_at == result.stored_at + timedelta(seconds=10)


async def test_many_messages_of_which_some_are_delayed_are_sent_together(
    client: eruca.AsyncClient, topic: str
) -> None:
    messages = [
        eruca.Message(topic, str(n), delay_seconds=0.2 if n % 2 else None, sharding_key="one")
        for n in range(20)
    ]
    async with client.producer() as producer:
        results = await producer.send_many(messages)

    assert [result.deliver_at is None for result in results] == [True, False] * 10
    assert len({result.queue for result in results}) == 1
    assert len({result.log_offset for result in results}) == 20
    bodies = [message.text() for message in await received(client, topic, 20)]
    assert bodies == [str(n) for n in (*range(0, 20, 2), *range(1, 20, 2))]


async def test_all_of_a_delayed_message_arrives(client: eruca.AsyncClient, topic: str) -> None:
    sent = eruca.Message(
        topic,
        b"\xff\x00",
        keys=["k1", "k2"],
        tag="t",
        properties={"p": "v"},
        sharding_key="s",
        message_id="an-id-of-its-own",
        flag=-5,
        delay_seconds=0.05,
    )
    async with client.producer() as producer:
        plain = await producer.send(eruca.Message(topic, "x", sharding_key="s"))
        result = await producer.send(sent)

    async with client.pull_consumer(queues=[result.queue]) as consumer:
        messages: list[eruca.ReceivedMessage] = []
        while len(messages) < 2:
            messages += await consumer.poll()
    message = messages[1]
    assert plain.queue == result.queue
    assert (message.body, message.keys, message.tag) == (sent.body, ["k1", "k2"], "t")
    assert (message.properties, message.sharding_key, message.flag) == ({"p": "v"}, "s", -5)
    assert message.message_id == result.message_id == "an-id-of-its-own"


async def test_a_delay_that_a_broker_refuses_takes_no_stranger_down_with_it(
    client: eruca.AsyncClient, topic: str
) -> None:
    far = datetime.now(UTC) + timedelta(days=4_000)
    async with client.producer() as producer:
        refused = await producer.submit(eruca.Message(topic, "x", deliver_at=far))
        stored = await producer.submit(eruca.Message(topic, "y", delay_seconds=30))
        with pytest.raises(eruca.ValidationError, match="delay"):
            await refused
        assert (await stored).deliver_at is not None


async def test_what_waits_is_listed_as_it_comes_due(client: eruca.AsyncClient, topic: str) -> None:
    async with client.producer() as producer:
        results = await producer.send_many(
            [
                eruca.Message(topic, str(n), delay_seconds=600 - n, sharding_key=str(n))
                for n in range(9)
            ]
        )

    listed = [held async for held in client.admin.scheduled(topic=topic)]

    assert [held.message.message_id for held in listed] == [r.message_id for r in reversed(results)]
    assert {held.broker_name for held in listed} == {r.queue.broker_name for r in results}
    assert {held.broker_name for held in listed} == {"broker-a", "broker-b"}
    assert [held.message.deliver_at for held in listed] == [r.deliver_at for r in reversed(results)]


async def test_a_message_is_recalled_wherever_it_waits(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as producer:
        result = await producer.send(eruca.Message(topic, "x", delay_seconds=600))
        delivered = await producer.send(eruca.Message(topic, "y", delay_seconds=0.02))

    assert [m.text() for m in await received(client, topic, 1)] == ["y"]
    assert result.recall_handle is not None
    assert delivered.recall_handle is not None
    recalled = await client.admin.recall_scheduled(result.recall_handle)
    assert (recalled.topic, recalled.broker_name) == (topic, result.queue.broker_name)
    assert [held async for held in client.admin.scheduled(topic=topic)] == []
    with pytest.raises(AlreadyDeliveredError):
        await client.admin.recall_scheduled(delivered.recall_handle)
    with pytest.raises(ScheduledNotFoundError):
        await client.admin.recall_scheduled("no-such-message")


async def test_a_recall_takes_no_message_of_the_same_id_from_another_broker(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as producer:
        held: dict[str, eruca.SendResult] = {}
        while len(held) < 2:  # one on each broker
            message = eruca.Message(topic, "x", delay_seconds=600, message_id="order-17")
            result = await producer.send(message)
            held.setdefault(result.queue.broker_name, result)
    first, second = held.values()
    assert first.recall_handle is not None

    with pytest.raises(eruca.ValidationError) as refused:
        await client.admin.recall_scheduled("order-17")
    untouched = [held async for held in client.admin.scheduled(topic=topic)]
    await client.admin.recall_scheduled(first.recall_handle)
    left = [held async for held in client.admin.scheduled(topic=topic)]

    handles = {held.message.recall_handle for held in untouched}
    assert {first.recall_handle, second.recall_handle} <= handles
    named = " ".join(error["detail"] for error in refused.value.errors)
    assert all(handle in named for handle in handles if handle is not None)
    assert second.recall_handle in {held.message.recall_handle for held in left}
    assert first.recall_handle not in {held.message.recall_handle for held in left}
