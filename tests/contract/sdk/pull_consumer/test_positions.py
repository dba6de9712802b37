"""The pull consumer: where it starts, and where it seeks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import eruca
from support.pull_consumers import numbers, poll_all, send
from support.waiting import until

pytestmark = pytest.mark.anyio


# Where to start.


async def test_a_consumer_without_a_group_starts_where_it_is_told(
    client: eruca.AsyncClient, topic: str
) -> None:
    old = await send(client, topic, *numbers(0, 10))
    middle = max(result.stored_at for result in old) + timedelta(milliseconds=1)
    await until(lambda: datetime.now(UTC) > middle)
    await send(client, topic, *numbers(10, 20))

    async with client.pull_consumer(topics=topic, start=middle) as by_time:
        assert sorted(int(m.text()) for m in await poll_all(by_time, 10)) == list(range(10, 20))
    async with client.pull_consumer(topics=topic, start="latest") as from_now:
        assert await from_now.poll(wait_seconds=0.05) == []
        await send(client, topic, "new")
        assert [m.text() for m in await from_now.poll(wait_seconds=20)] == ["new"]


async def test_a_group_goes_on_where_it_stands_whatever_the_start_says(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    await send(client, topic, *numbers(0, 10))
    async with client.pull_consumer(name, topics=topic) as first:
        await poll_all(first, 10)
    await send(client, topic, *numbers(10, 15))

    async with client.pull_consumer(name, topics=topic, start="earliest") as second:
        messages = await poll_all(second, 5)

    assert sorted(int(m.text()) for m in messages) == list(range(10, 15))


@pytest.mark.parametrize("start", ["earliest", "latest", datetime(2026, 1, 1, tzinfo=UTC)])
async def test_a_start_that_the_groups_offsets_come_before_is_said_once(
    client: eruca.AsyncClient,
    topic: str,
    name: str,
    start: datetime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await send(client, topic, *numbers(0, 10))
    for given in ({"start": start}, {}, {"start": "committed"}):  # the first makes the group
        async with client.pull_consumer(name, topics=topic, **given) as consumer:
            await consumer.seek_to_beginning()
            await poll_all(consumer, 10)
    await send(client, topic, *numbers(10, 15))
    assert caplog.messages == []

    async with client.pull_consumer(name, topics=topic, start=start, filter="none") as consumer:
        queues = await consumer.assignment()
        for queue in queues:
            await consumer.position(queue)

    [warning] = caplog.messages
    assert warning.startswith("start=")
    assert f"is ignored: group {name} already has offsets." in warning
    assert f"run: eruca group reset {name} --topic {topic} --to" in warning


async def test_a_group_that_must_have_a_position_is_not_started_without(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    async with client.pull_consumer(name, topics=topic, start="committed") as consumer:
        with pytest.raises(eruca.NoCommittedOffsetError, match=f"group {name} has no"):
            await consumer.poll(wait_seconds=20)

        await consumer.seek_to_beginning()
        await send(client, topic, "x")
        assert len(await consumer.poll(wait_seconds=20)) == 1


# Seeking.


async def test_seeking_reads_on_at_an_offset_a_time_the_begin_or_the_end(
    client: eruca.AsyncClient, topic: str
) -> None:
    queue = eruca.MessageQueue(topic, "broker-a", 0)
    async with client.producer() as producer:
        results = [
            await producer.send(eruca.Message(topic, str(n)), queue=queue) for n in range(10)
        ]

    async with client.pull_consumer(queues=[queue]) as consumer:
        assert len(await poll_all(consumer, 10)) == 10
        assert await consumer.position(queue) == 10

        await consumer.seek(queue, 7)
        assert await consumer.position(queue) == 7
        assert [m.text() for m in await poll_all(consumer, 3)] == ["7", "8", "9"]

        await consumer.seek_to_beginning()
        assert await consumer.position(queue) == 0
        assert [m.text() for m in await consumer.poll(count_max=2, wait_seconds=20)] == ["0", "1"]

        await consumer.seek_to_time(results[5].stored_at, queue)
        assert await consumer.position(queue) <= 5

        await consumer.seek_to_end()
        assert await consumer.position(queue) == 10
        assert await consumer.poll(wait_seconds=0.05) == []
        assert await consumer.offset_by_time(queue, datetime.now(UTC)) == 10


async def test_a_seek_while_waiting_is_heeded_at_once(
    client: eruca.AsyncClient, topic: str
) -> None:
    queue = eruca.MessageQueue(topic, "broker-a", 0)
    async with client.producer() as producer:
        await producer.send(eruca.Message(topic, "x"), queue=queue)

    async with client.pull_consumer(queues=[queue], start="latest") as consumer:
        waiting = asyncio.create_task(consumer.poll(wait_seconds=20))
        assert await consumer.position(queue) == 1
        await consumer.seek(queue, 0)

        assert [m.text() for m in await waiting] == ["x"]


@pytest.mark.parametrize("offset", [-1, 50])
async def test_a_position_outside_of_the_queue_is_an_error_unless_told_otherwise(
    client: eruca.AsyncClient, topic: str, offset: int
) -> None:
    queue = eruca.MessageQueue(topic, "broker-a", 0)
    async with client.producer() as producer:
        await producer.send(eruca.Message(topic, "x"), queue=queue)

    async with client.pull_consumer(queues=[queue]) as strict:
        if offset < 0:
            with pytest.raises(eruca.ValidationError, match="offset: expected 0 or more, found -1"):
                await strict.seek(queue, offset)
            return
        await strict.seek(queue, offset)
        with pytest.raises(eruca.OffsetOutOfRangeError, match="ends at 1, before offset 50"):
            await strict.poll(wait_seconds=20)
        await strict.seek_to_beginning()
        assert len(await strict.poll(wait_seconds=20)) == 1
    async with client.pull_consumer(queues=[queue], on_offset_out_of_range="earliest") as easy:
        await easy.seek(queue, offset)
        assert [m.text() for m in await easy.poll(wait_seconds=20)] == ["x"]


async def test_a_queue_that_is_not_read_cannot_be_sought(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.pull_consumer(topics=topic) as consumer:
        with pytest.raises(eruca.ValidationError, match="not read by this consumer"):
            await consumer.seek(eruca.MessageQueue("other", "broker-a", 0), 0)
