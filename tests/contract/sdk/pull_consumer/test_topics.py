"""The pull consumer: queues and topics that are named, added, deleted or missing."""

from __future__ import annotations

import asyncio
import logging

import pytest

import eruca
from support.patience import PATIENCE_SECONDS
from support.pull_consumers import numbers, poll_all, send
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_named_queues_are_read_and_no_others(client: eruca.AsyncClient, topic: str) -> None:
    queue = eruca.MessageQueue(topic, "broker-a", 1)
    sent = await send(client, topic, *numbers(0, 100))
    expected = sum(result.queue == queue for result in sent)

    async with client.pull_consumer(queues=[queue]) as consumer:
        messages = await poll_all(consumer, expected)
        assert await consumer.assignment() == [queue]

    assert {m.queue for m in messages} == {queue}


async def test_a_topic_that_does_not_exist_is_an_error(
    client: eruca.AsyncClient, name: str
) -> None:
    async with client.pull_consumer(topics=name) as consumer:
        with pytest.raises(eruca.TopicNotFoundError):
            await consumer.poll(wait_seconds=20)


async def test_a_topic_that_is_deleted_holds_up_no_other(
    client: eruca.AsyncClient, topic: str
) -> None:
    other = f"{topic}-other"
    await client.admin.create_topic(other, queue_count=2)
    async with client.pull_consumer(topics=[topic, other], start="earliest") as consumer:
        await send(client, topic, *numbers(0, 10))
        before = await poll_all(consumer, 10)

        await client.admin.delete_topic(topic)
        await send(client, other, *numbers(10, 20))
        after = await poll_all(consumer, 10)

    assert sorted(int(message.text()) for message in before + after) == list(range(20))


async def test_a_topic_that_is_deleted_is_warned_of_once_at_each_broker(
    client: eruca.AsyncClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = f"{topic}-other"
    await client.admin.create_topic(other, queue_count=2)
    caplog.set_level(logging.DEBUG, "eruca")

    def said(level: int) -> list[str]:
        records = [r for r in caplog.records if r.levelno == level]
        return [r.getMessage() for r in records if " queues now: " in r.getMessage()]

    async with client.pull_consumer(topics=[topic, other], start="earliest") as consumer:
        await send(client, topic, "0")
        await poll_all(consumer, 1)
        await client.admin.delete_topic(topic)
        await until(lambda: said(logging.DEBUG))  # the next look at it finds the same

        warned = said(logging.WARNING)
        assert len(warned) == len(set(warned))  # one for each broker
        assert all(topic in line for line in warned)


@pytest.mark.parametrize("commit_seconds", [None, 0.05], ids=["by hand", "automatically"])
async def test_a_topic_that_is_deleted_keeps_no_other_from_being_committed(
    client: eruca.AsyncClient, topic: str, name: str, commit_seconds: float | None
) -> None:
    other = f"{topic}-other"
    await client.admin.create_topic(other, queue_count=2)
    queue, gone = eruca.MessageQueue(other, "broker-a", 0), eruca.MessageQueue(topic, "broker-a", 0)
    async with client.pull_consumer(
        name, topics=[topic, other], commit_seconds=commit_seconds
    ) as consumer:
        await send(client, topic, *numbers(0, 10))
        await poll_all(consumer, 10)
        await consumer.commit()

        await client.admin.delete_topic(topic)
        async with client.producer() as producer:
            await producer.send(eruca.Message(other, "a"), queue=queue)
        await poll_all(consumer, 1)
        if commit_seconds is None:
            await consumer.commit()
            with pytest.raises(eruca.TopicNotFoundError):
                await consumer.commit({gone: 3})

        async with asyncio.timeout(PATIENCE_SECONDS):
            while await consumer.committed(queue) != 1:
                await consumer.poll(wait_seconds=0.05)


async def test_a_topic_that_does_not_exist_can_be_waited_for(
    client: eruca.AsyncClient, name: str
) -> None:
    async with client.pull_consumer(topics=name, start="latest", wait_for_topics=True) as consumer:
        waiting = asyncio.create_task(consumer.poll(wait_seconds=30))
        await asyncio.sleep(0)
        await client.admin.create_topic(name, queue_count=1)
        await send(client, name, "x")

        assert [m.text() for m in await waiting] == ["x"]


async def test_queues_that_are_added_are_read_from_their_beginning(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.pull_consumer(topics=topic, start="latest") as consumer:
        assert await consumer.poll(wait_seconds=0.05) == []
        await client.admin.create_topic(topic, queue_count=3)
        async with client.producer() as producer:
            queue = eruca.MessageQueue(topic, "broker-b", 2)
            await producer.send(eruca.Message(topic, "x"), queue=queue)

        assert [m.queue for m in await consumer.poll(wait_seconds=20)] == [queue]
        while len(await consumer.assignment()) < 6:  # the other broker may register later
            assert await consumer.poll(wait_seconds=0.05) == []
