"""The pull consumer against real brokers: everything once, in order, nothing committed early."""

from __future__ import annotations

import asyncio
import logging
import math
from datetime import UTC, datetime, timedelta

import pytest

import eruca
from support.patience import PATIENCE_SECONDS
from support.waiting import stays, until

pytestmark = pytest.mark.anyio


async def send(
    client: eruca.AsyncClient, topic: str, *bodies: str, tag: str | None = None
) -> eruca.SendResults:
    async with client.producer(batching=eruca.Batching(count_max=7)) as producer:
        return await producer.send_many([eruca.Message(topic, body, tag=tag) for body in bodies])


def numbers(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


async def poll_all(consumer: eruca.AsyncPullConsumer, count: int) -> list[eruca.ReceivedMessage]:
    messages: list[eruca.ReceivedMessage] = []
    while len(messages) < count:
        batch = await consumer.poll(count_max=50, wait_seconds=20)
        assert batch, f"only {len(messages)} of {count} came"
        messages += batch
    return messages


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


# Tags.


async def test_a_filter_lets_its_tags_through_and_no_others(
    client: eruca.AsyncClient, topic: str
) -> None:
    """``Aa`` and ``BB`` have one hash, so the broker cannot tell them apart."""
    for tag in ("Aa", "BB", "C", None):
        await send(client, topic, *numbers(0, 10), tag=tag)

    async with client.pull_consumer(topics=topic, filter="Aa || C") as consumer:
        messages = await poll_all(consumer, 20)
        assert await consumer.poll(wait_seconds=0.05) == []
        lag = await consumer.lag()

    assert {m.tag for m in messages} == {"Aa", "C"}
    assert set(lag.values()) == {0}


async def test_a_condition_over_properties_lets_through_what_meets_it(
    client: eruca.AsyncClient, topic: str
) -> None:
    async with client.producer() as producer:
        for price in ("10", "21", "many", "30"):
            await producer.send(eruca.Message(topic, price, properties={"price": price}))
        await producer.send(eruca.Message(topic, "none"))

    dear = eruca.sql("price > 20")
    async with client.pull_consumer("g", topics=topic, filter={topic: dear}) as consumer:
        messages = await poll_all(consumer, 2)
        assert await consumer.poll(wait_seconds=0.05) == []

    assert sorted(m.text() for m in messages) == ["21", "30"]


async def test_each_topic_may_have_a_filter_of_its_own(
    client: eruca.AsyncClient, topic: str
) -> None:
    other = f"{topic}-other"
    await client.admin.create_topic(other, queue_count=1)
    for name in (topic, other):
        await send(client, name, "a", tag="a")
        await send(client, name, "b", tag="b")

    async with client.pull_consumer(topics=[topic, other], filter={topic: "a"}) as consumer:
        messages = await poll_all(consumer, 3)

    assert sorted((m.topic, m.tag) for m in messages) == [
        (topic, "a"),
        (other, "a"),
        (other, "b"),
    ]


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


# Committing.


async def committed(client: eruca.AsyncClient, group: str, topic: str) -> int:
    """Return how many messages of a topic the group is past."""
    offsets = await client.admin.groups.offsets(group, topic=topic)
    return sum(offset.committed_offset or 0 for offset in offsets.values())


async def test_a_commit_covers_what_was_handed_out_and_not_what_was_fetched_ahead(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    await send(client, topic, *numbers(0, 100))

    async with client.pull_consumer(name, topics=topic, commit_seconds=None) as consumer:
        handed_out = len(await consumer.poll(count_max=30, wait_seconds=20))
        assert await committed(client, name, topic) == 0
        await consumer.commit()
        assert await committed(client, name, topic) == handed_out
        await consumer.commit()  # nothing new, harmless
        queue = (await consumer.assignment())[0]
        assert await consumer.committed(queue) == await consumer.position(queue)

    assert await committed(client, name, topic) == handed_out


async def test_a_commit_while_iterating_covers_the_messages_iterated_over(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    await send(client, topic, *numbers(0, 100))

    async with client.pull_consumer(name, topics=topic, commit_seconds=None) as consumer:
        for _ in range(37):
            await anext(consumer)
        await consumer.commit()

    assert await committed(client, name, topic) == 37


async def test_the_automatic_commit_covers_what_was_handed_out_before_the_last_poll(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    """Though more is ready each time, so that no poll has to wait."""
    await send(client, topic, *numbers(0, 100))
    handed_out = 0

    async with client.pull_consumer(name, topics=topic, commit_seconds=0) as consumer:
        for _ in range(3):
            before = handed_out
            handed_out += len(await consumer.poll(count_max=10, wait_seconds=20))
            # It is due in each poll; the last poll committed what was done when it began.
            assert await committed(client, name, topic) == before


async def test_the_automatic_commit_goes_on_while_a_poll_waits(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    await send(client, topic, *numbers(0, 10))

    async with client.pull_consumer(name, topics=topic, commit_seconds=0.05) as consumer:
        await poll_all(consumer, 10)
        assert await consumer.poll(wait_seconds=0.3) == []

        assert await committed(client, name, topic) == 10


async def test_leaving_the_context_commits_everything_handed_out(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    await send(client, topic, *numbers(0, 50))

    async with client.pull_consumer(name, topics=topic) as consumer:
        handed_out = len(await consumer.poll(count_max=20, wait_seconds=20))

    assert await committed(client, name, topic) == handed_out


async def test_what_was_not_committed_is_read_again(client: eruca.AsyncClient, topic: str) -> None:
    await send(client, topic, *numbers(0, 20))

    for _ in range(2):
        consumer = client.pull_consumer(topic, topics=topic, start="earliest", commit_seconds=None)
        messages = await poll_all(consumer, 20)
        assert sorted(m.text() for m in messages) == sorted(numbers(0, 20))
        await consumer.close()


async def test_an_exception_leaves_the_batch_in_hand_uncommitted(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    await send(client, topic, *numbers(0, 50))

    async def consume() -> None:
        async with client.pull_consumer(name, topics=topic) as consumer:
            for _ in range(21):
                await anext(consumer)
            raise RuntimeError("poison")

    with pytest.raises(RuntimeError, match="poison"):
        await consume()

    assert await committed(client, name, topic) == 20


@pytest.mark.parametrize("by_offsets", [False, True], ids=["all", "some"])
async def test_an_exception_takes_back_nothing_that_was_committed_by_hand(
    client: eruca.AsyncClient, topic: str, name: str, *, by_offsets: bool
) -> None:
    await send(client, topic, *numbers(0, 50))
    handled = 0

    async def consume() -> None:
        nonlocal handled
        async with client.pull_consumer(name, topics=topic) as consumer:
            messages = await consumer.poll(count_max=20, wait_seconds=20)
            if by_offsets:
                first = messages[0]
                handled = 1
                await consumer.commit({first.queue: first.queue_offset + 1})
            else:
                handled = len(messages)
                await consumer.commit()
            raise RuntimeError("too late to undo that")

    with pytest.raises(RuntimeError, match="too late"):
        await consume()

    assert handled > 0
    assert await committed(client, name, topic) == handled


async def test_offsets_can_be_committed_by_hand(
    client: eruca.AsyncClient, topic: str, name: str
) -> None:
    queue = eruca.MessageQueue(topic, "broker-b", 1)
    await send(client, topic, *numbers(0, 100))

    async with client.pull_consumer(name, topics=topic, commit_seconds=None) as consumer:
        await consumer.commit({queue: 3})
        assert await consumer.committed(queue) == 3
        with pytest.raises(eruca.ValidationError):
            await consumer.commit({queue: -1})


async def test_a_consumer_without_a_group_commits_nothing(
    client: eruca.AsyncClient, topic: str
) -> None:
    queue = eruca.MessageQueue(topic, "broker-b", 1)
    async with client.pull_consumer(topics=topic) as consumer:
        with pytest.raises(eruca.ValidationError, match="without a group"):
            await consumer.commit()
        with pytest.raises(eruca.ValidationError, match="without a group"):
            await consumer.committed(queue)


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
