"""The orderly push consumer against real brokers: order in each queue, whatever handlers say."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict

import pytest

import eruca
from eruca import ConsumeStatus
from support.patience import PATIENCE_SECONDS, SESSION_SECONDS
from support.push import Gatherer, committed, send
from support.waiting import until

pytestmark = pytest.mark.anyio


def by_queue(messages: list[eruca.ReceivedMessage]) -> dict[eruca.MessageQueue, list[int]]:
    offsets: dict[eruca.MessageQueue, list[int]] = defaultdict(list)
    for message in messages:
        offsets[message.queue].append(message.queue_offset)
    return offsets


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_each_queue_is_handled_in_order_and_one_message_at_a_time(
    client: eruca.AsyncClient, topic: str, kind: str
) -> None:
    messages: list[eruca.ReceivedMessage] = []
    busy: set[eruca.MessageQueue] = set()
    lock = threading.Lock()
    consumer = client.push_consumer(topic, start="earliest", ordered=True)

    def begin(message: eruca.ReceivedMessage) -> None:
        with lock:
            assert message.queue not in busy
            busy.add(message.queue)

    def end(message: eruca.ReceivedMessage) -> None:
        with lock:
            busy.remove(message.queue)
            messages.append(message)

    async def on_loop(message: eruca.ReceivedMessage) -> None:
        begin(message)
        await asyncio.sleep(0)
        end(message)

    def in_thread(message: eruca.ReceivedMessage) -> None:
        begin(message)
        end(message)

    consumer.subscribe(topic, handler=on_loop if kind == "async" else in_thread)
    await send(client, topic, range(400))
    async with consumer:
        await until(lambda: len(messages) == 400)

    for offsets in by_queue(messages).values():
        assert offsets == list(range(len(offsets)))
    assert await committed(client, topic, topic) == 400


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_failed_message_is_tried_again_in_place_before_those_behind_it(
    client: eruca.AsyncClient, topic: str, kind: str
) -> None:
    """A plain function may have been given all of them at a time."""
    seen: list[tuple[str, int]] = []
    consumer = client.push_consumer(
        topic, start="earliest", ordered=True, retries=eruca.Retries(suspend_seconds=0.02)
    )

    def in_thread(message: eruca.ReceivedMessage) -> None:
        seen.append((message.text(), message.attempt))
        if message.text() == "1" and message.attempt < 3:
            raise ValueError("not yet")

    async def on_loop(message: eruca.ReceivedMessage) -> None:
        in_thread(message)

    consumer.subscribe(topic, handler=on_loop if kind == "async" else in_thread)
    await send(client, topic, range(4), key="one queue")
    async with consumer:
        await until(lambda: len(seen) == 6)

    assert seen == [("0", 1), ("1", 1), ("1", 2), ("1", 3), ("2", 1), ("3", 1)]
    assert await committed(client, topic, topic) == 4


async def test_a_lower_limit_of_retries_gets_a_blocked_queue_going(
    client: eruca.AsyncClient, topic: str
) -> None:
    attempts: list[int] = []
    gatherer = Gatherer()

    async def handle(message: eruca.ReceivedMessage) -> None:
        if message.text() == "0":
            attempts.append(message.attempt)
            raise ValueError("never")
        await gatherer(message)

    await client.admin.groups.create(topic, start="earliest", ordered=True, retries_max=1_000)
    consumer = client.push_consumer(
        topic, ordered=True, retries=eruca.Retries(suspend_seconds=0.02)
    )
    consumer.subscribe(topic, handler=handle)
    await send(client, topic, range(2), key="one queue")
    async with consumer:
        await until(lambda: len(attempts) > 2)
        await client.admin.groups.create(topic, start="earliest", ordered=True, retries_max=1)

        await gatherer.until_count(1)

    assert attempts == list(range(1, len(attempts) + 1))
    [letter] = [held.letter async for held in client.admin.groups.dead_letters(topic)]
    assert letter.attempts == len(attempts)


async def test_a_suspended_queue_waits_as_long_as_its_handler_asks(
    client: eruca.AsyncClient, topic: str
) -> None:
    times: list[float] = []
    consumer = client.push_consumer(
        topic, start="earliest", ordered=True, retries=eruca.Retries(suspend_seconds=30)
    )

    @consumer.on(topic)
    async def handle(
        message: eruca.ReceivedMessage, context: eruca.ConsumeContext
    ) -> ConsumeStatus:
        times.append(time.monotonic())
        context.suspend_seconds = 0.2
        return ConsumeStatus.SUCCESS if len(times) > 1 else ConsumeStatus.SUSPEND

    await send(client, topic, [0])
    async with consumer:
        await until(lambda: len(times) == 2)

    assert times[1] - times[0] >= 0.2


async def test_without_automatic_commits_a_commit_covers_everything_before_it(
    client: eruca.AsyncClient, topic: str
) -> None:
    seen: list[str] = []
    consumer = client.push_consumer(
        topic, start="earliest", ordered=True, offsets=eruca.Offsets(auto_commit=False)
    )

    @consumer.on(topic)
    def handle(message: eruca.ReceivedMessage) -> ConsumeStatus:
        seen.append(message.text())
        return ConsumeStatus.COMMIT if message.text() == "5" else ConsumeStatus.SUCCESS

    await send(client, topic, range(10), key="one queue")
    async with consumer:
        await until(lambda: len(seen) == 10)

    assert await committed(client, topic, topic) == 6


async def test_what_waits_for_a_commit_leaves_all_of_the_bound_to_the_message_that_commits(
    client: eruca.AsyncClient, topic: str
) -> None:
    seen: list[str] = []
    consumer = client.push_consumer(
        topic,
        start="earliest",
        ordered=True,
        offsets=eruca.Offsets(auto_commit=False),
        limits=eruca.Limits(queue_count_max=10),
    )

    @consumer.on(topic)
    def handle(message: eruca.ReceivedMessage) -> ConsumeStatus:
        seen.append(message.text())
        return ConsumeStatus.COMMIT if message.text() == "9" else ConsumeStatus.SUCCESS

    async with consumer:
        await send(client, topic, range(6), key="one queue")
        await until(lambda: len(seen) == 6)  # more than half of what may be held
        await send(client, topic, range(6, 10), key="one queue")
        await until(lambda: len(seen) == 10)

    assert await committed(client, topic, topic) == 10


async def test_a_rollback_brings_everything_uncommitted_back(
    client: eruca.AsyncClient, topic: str
) -> None:
    seen: list[str] = []
    consumer = client.push_consumer(
        topic,
        start="earliest",
        ordered=True,
        offsets=eruca.Offsets(auto_commit=False),
        retries=eruca.Retries(suspend_seconds=0.02),
    )

    @consumer.on(topic)
    async def handle(message: eruca.ReceivedMessage) -> ConsumeStatus:
        seen.append(message.text())
        if message.text() == "2":
            return ConsumeStatus.ROLLBACK if seen.count("2") == 1 else ConsumeStatus.COMMIT
        return ConsumeStatus.SUCCESS

    await send(client, topic, range(3), key="one queue")
    async with consumer:
        await until(lambda: len(seen) == 6)

    assert seen == ["0", "1", "2", "0", "1", "2"]
    assert await committed(client, topic, topic) == 3


async def test_a_poison_message_blocks_its_key_and_no_other(
    client: eruca.AsyncClient, name: str
) -> None:
    await client.admin.create_topic(name, queue_count=1)
    seen: list[str] = []
    is_mended = False
    consumer = client.push_consumer(
        name,
        start="earliest",
        ordered=True,
        retries=eruca.Retries(on_poison="block_key", suspend_seconds=0.02),
    )

    @consumer.on(name)
    async def handle(message: eruca.ReceivedMessage) -> None:
        if message.text() == "a1" and not is_mended:
            raise ValueError("poison")
        seen.append(message.text())

    async with client.producer() as producer:
        for n in range(3):
            for key in "ab":
                message = eruca.Message(name, f"{key}{n}", sharding_key=key)
                await producer.send(message)
    async with consumer:
        await until(lambda: "b2" in seen)
        b_went_on = list(seen)
        is_mended = True
        await until(lambda: len(seen) == 6)

    assert [text for text in b_went_on if text[0] == "b"] == ["b0", "b1", "b2"]
    assert [text for text in seen if text[0] == "a"] == ["a0", "a1", "a2"]


async def test_stopping_an_orderly_consumer_ends_with_the_batch_in_hand(
    client: eruca.AsyncClient, topic: str
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    first: list[str] = []
    consumer = client.push_consumer(topic, start="earliest", ordered=True)

    @consumer.on(topic)
    async def handle(message: eruca.ReceivedMessage) -> None:
        begun.set()
        await go.wait()
        first.append(message.text())

    await send(client, topic, range(20), key="one queue")
    await consumer.start()
    await begun.wait()
    running = consumer._running
    assert running is not None
    [held] = [held for held in running._held.values() if held.process.count]
    stopping = asyncio.create_task(consumer.stop())
    await until(lambda: held.is_draining)
    go.set()
    await stopping
    assert first == ["0"]

    gatherer = Gatherer()
    other = client.push_consumer(topic, ordered=True)
    other.subscribe(topic, handler=gatherer)
    async with other:
        await gatherer.until_count(19)
    assert gatherer.texts == [str(n) for n in range(1, 20)]


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_queue_that_is_lost_and_had_again_waits_for_the_handler_of_before(
    client: eruca.AsyncClient, topic: str, kind: str
) -> None:
    begun: list[str] = []
    busy: list[str] = []
    most_busy = 0
    go = threading.Event()
    assigned: list[eruca.MessageQueue] = []
    consumer = client.push_consumer(
        topic,
        start="earliest",
        ordered=True,
        membership=eruca.Membership(session_seconds=SESSION_SECONDS),
        listeners=eruca.Listeners(on_assigned=assigned.extend),
    )

    def begin(message: eruca.ReceivedMessage) -> None:
        nonlocal most_busy
        begun.append(message.text())
        busy.append(message.text())
        most_busy = max(most_busy, len(busy))

    def in_thread(message: eruca.ReceivedMessage) -> None:
        begin(message)
        go.wait(PATIENCE_SECONDS)
        busy.remove(message.text())

    async def on_loop(message: eruca.ReceivedMessage) -> None:
        begin(message)
        await until(go.is_set)
        busy.remove(message.text())

    consumer.subscribe(topic, handler=on_loop if kind == "async" else in_thread)
    [queue] = {result.queue for result in await send(client, topic, range(3), key="one queue")}
    async with consumer:
        await until(lambda: begun)
        await client.admin.groups.reset(topic, topic, "earliest")
        await until(lambda: assigned.count(queue) == 2)
        running = consumer._running
        assert running is not None
        held = running._held[queue]
        await until(lambda: held.process.count == 3)  # the message to be handled again is here
        assert begun == ["0"]
        go.set()
        await until(lambda: len(begun) == 4)

    assert begun == ["0", "0", "1", "2"]
    assert most_busy == 1
