"""The pull consumer's paused queues."""

from __future__ import annotations

import pytest

import eruca
from support.pull_consumers import numbers, poll_all, send
from support.waiting import until

pytestmark = pytest.mark.anyio


# Pausing.


async def test_a_paused_queue_hands_nothing_out_until_it_is_resumed(
    client: eruca.AsyncClient, topic: str
) -> None:
    paused = eruca.MessageQueue(topic, "broker-a", 0)
    other = eruca.MessageQueue(topic, "broker-b", 0)
    async with client.producer() as producer:
        for queue in (paused, other):
            await producer.send(eruca.Message(topic, queue.broker_name), queue=queue)

    async with client.pull_consumer(topics=topic) as consumer:
        await consumer.pause(paused)
        assert [m.queue for m in await consumer.poll(wait_seconds=20)] == [other]
        assert await consumer.poll(wait_seconds=0.1) == []

        await consumer.resume(paused)
        assert [m.queue for m in await consumer.poll(wait_seconds=20)] == [paused]


async def test_a_pause_while_iterating_keeps_back_what_has_not_been_handed_out(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    paused = eruca.MessageQueue(topic, "broker-a", 0)
    other = eruca.MessageQueue(topic, "broker-a", 1)
    async with client.producer() as producer:
        await producer.send_many([eruca.Message(topic, "x")] * 5, queue=paused)

        async with client.pull_consumer(name, queues=[paused, other]) as consumer:
            await anext(consumer)
            await consumer.pause(paused)
            assert await consumer.position(paused) == 1

            await producer.send(eruca.Message(topic, "y"), queue=other)
            assert (await anext(consumer)).queue == other
            await consumer.resume(paused)
            assert [(await anext(consumer)).queue_offset for _ in range(4)] == [1, 2, 3, 4]


async def test_a_paused_queue_takes_no_room_of_the_others(
    client: eruca.AsyncClient, topic: str
) -> None:
    paused = eruca.MessageQueue(topic, "broker-a", 0)
    other = eruca.MessageQueue(topic, "broker-a", 1)
    async with client.producer() as producer:
        await producer.send_many([eruca.Message(topic, "x")] * 9, queue=paused)

        async with client.pull_consumer(queues=[paused, other], prefetch_bytes_max=1) as consumer:
            await consumer.poll(count_max=1, wait_seconds=20)
            await until(lambda: consumer._assignment.flow(paused).count)
            await consumer.pause(paused)
            await producer.send(eruca.Message(topic, "y"), queue=other)

            assert [m.text() for m in await consumer.poll(wait_seconds=5)] == ["y"]


async def test_a_paused_queue_can_be_read_elsewhere_later(
    client: eruca.AsyncClient, topic: str
) -> None:
    queue = eruca.MessageQueue(topic, "broker-a", 0)
    async with client.producer() as producer:
        await producer.send_many([eruca.Message(topic, "x")] * 9, queue=queue)

    async with client.pull_consumer(queues=[queue]) as consumer:
        await consumer.pause(queue)
        await consumer.seek_to_end(queue)
        assert await consumer.position(queue) == 9
        assert await consumer.poll(wait_seconds=0.1) == []


async def test_everything_can_be_paused_at_once(client: eruca.AsyncClient, topic: str) -> None:
    await send(client, topic, *numbers(0, 10))

    async with client.pull_consumer(topics=topic) as consumer:
        await consumer.pause()
        assert await consumer.poll(wait_seconds=0.1) == []
        await consumer.resume()
        await poll_all(consumer, 10)
