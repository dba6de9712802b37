"""The pull consumer against real brokers: everything once, in order, by polls and iterations."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime

import pytest

import eruca
from support.patience import PATIENCE_SECONDS
from support.pull_consumers import numbers, poll_all, send
from support.waiting import stays

pytestmark = pytest.mark.anyio


async def test_every_message_comes_once_and_each_queue_in_order(
    client: eruca.AsyncClient, topic: str
) -> None:
    sent = await send(client, topic, *numbers(0, 500))

    async with client.pull_consumer(topics=topic, prefetch_count_max=20) as consumer:
        messages = await poll_all(consumer, 500)

    assert {m.message_id for m in messages} == {result.message_id for result in sent}
    for queue in await client.admin.queues(topic):
        offsets = [m.queue_offset for m in messages if m.queue == queue]
        assert offsets == list(range(len(offsets)))


async def test_a_poll_waits_for_what_is_sent_meanwhile(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.pull_consumer(topics=topic) as consumer:
        assert await consumer.poll(wait_seconds=0.05) == []
        waiting = asyncio.create_task(consumer.poll(wait_seconds=20))
        await asyncio.sleep(0)
        await send(client, topic, "now")

        assert [m.text() for m in await waiting] == ["now"]


async def test_a_poll_may_wait_for_ever(client: eruca.AsyncClient, topic: str) -> None:
    async with client.pull_consumer(topics=topic) as consumer:
        waiting = asyncio.create_task(consumer.poll(wait_seconds=math.inf))
        await stays(lambda: not waiting.done())
        await send(client, topic, "now")

        assert [m.text() for m in await waiting] == ["now"]


async def test_a_poll_gives_no_more_than_asked_for_and_keeps_the_rest(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, *numbers(0, 20))

    async with client.pull_consumer(topics=topic) as consumer:
        sizes = [len(await consumer.poll(count_max=3, wait_seconds=20)) for _ in range(4)]

    assert all(1 <= size <= 3 for size in sizes)


async def test_iterating_gives_one_message_after_another(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, *numbers(0, 30))
    seen = []

    async with client.pull_consumer(topics=topic) as consumer:
        async for message in consumer:
            seen.append(message.text())
            if len(seen) == 30:
                break

    assert sorted(seen, key=int) == numbers(0, 30)


async def test_a_second_iteration_at_the_same_time_is_refused(
    client: eruca.AsyncClient, topic: str
) -> None:
    """Of what both wait for, one would get nothing, and nobody the rest of its batch."""
    async with client.pull_consumer(topics=topic) as consumer:
        first = asyncio.create_task(anext(consumer))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="make a consumer for each"):
            await asyncio.wait_for(anext(consumer), PATIENCE_SECONDS)
        await send(client, topic, "now")

        assert (await first).text() == "now"


async def test_batches_come_without_empty_ones(client: eruca.AsyncClient, topic: str) -> None:
    await send(client, topic, *numbers(0, 30))
    count = 0

    async with client.pull_consumer(topics=topic) as consumer:
        async for batch in consumer.batches(count_max=10, wait_seconds=0.01):
            assert 1 <= len(batch) <= 10
            count += len(batch)
            if count == 30:
                break


async def test_a_poll_after_an_iteration_that_was_left_goes_on_where_it_stopped(
    client: eruca.AsyncClient, topic: str
) -> None:
    await send(client, topic, *numbers(0, 30))

    async with client.pull_consumer(topics=topic) as consumer:
        first = [await anext(consumer) for _ in range(10)]
        rest = await poll_all(consumer, 20)

    assert len({m.message_id for m in (*first, *rest)}) == 30


# Ends.


async def test_a_closed_consumer_hands_out_nothing_and_ends_iterations(
    client: eruca.AsyncClient, topic: str
) -> None:
    async def iterate(consumer: eruca.AsyncPullConsumer) -> None:
        async for message in consumer:
            raise AssertionError(message)

    async def iterate_by_batches(consumer: eruca.AsyncPullConsumer) -> None:
        async for batch in consumer.batches():
            raise AssertionError(batch)

    consumer, other = (client.pull_consumer(topics=topic) for _ in range(2))
    iterating = [
        asyncio.create_task(iterate(consumer)),
        asyncio.create_task(iterate_by_batches(other)),
    ]
    await stays(lambda: not any(task.done() for task in iterating))

    await consumer.close()
    await other.close()

    await asyncio.gather(*iterating)
    with pytest.raises(eruca.ClosedError):
        await consumer.poll()
    await consumer.close()  # again, harmless


@pytest.mark.parametrize(
    "settings",
    [
        {"topics": ()},
        {"topics": "t", "queues": [eruca.MessageQueue("t", "a", 0)]},
        {"topics": "with blank"},
        {"topics": "t", "group": "with blank"},
        {"topics": "t", "filter": "||"},
        {"topics": "t", "filter": {"u": "a"}},
        {"topics": "t", "start": "somewhere"},
        {"topics": "t", "start": datetime(2026, 1, 1)},  # noqa: DTZ001  (that is the point)
        {"topics": "t", "start": "committed"},
        {"topics": "t", "on_offset_out_of_range": "ignore"},
        {"topics": "t", "commit_seconds": -1},
        {"topics": "t", "prefetch_count_max": 0},
    ],
    ids=str,
)
async def test_settings_that_make_no_sense_are_refused(
    client: eruca.AsyncClient, settings: dict[str, object]
) -> None:
    with pytest.raises(eruca.ValidationError):
        client.pull_consumer(**settings)  # type: ignore[arg-type]
