"""Retries of orderly consumers: a message keeps its place, or dies and its queue goes on."""

from __future__ import annotations

import time

import pytest

import eruca
from support.push import committed, send
from support.retried import dead_letters, is_committed
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio


async def test_an_ordered_poison_message_dies_after_its_retries_and_the_queue_goes_on(
    client: eruca.AsyncClient, topic: str
) -> None:
    seen: list[tuple[str, int]] = []
    consumer = client.push_consumer(
        topic,
        start="earliest",
        ordered=True,
        retries=eruca.Retries(retries_max=2, suspend_seconds=0.02),
    )

    @consumer.on(topic)
    async def handle(message: eruca.ReceivedMessage) -> None:
        seen.append((message.text(), message.attempt))
        if message.text() == "1":
            raise ValueError("poison")

    await send(client, topic, range(3), key="one queue")
    async with consumer:
        await until(lambda: ("2", 1) in seen)

    assert seen == [("0", 1), ("1", 1), ("1", 2), ("1", 3), ("2", 1)]
    [letter] = await dead_letters(client, topic)
    assert "poison" in str(letter["last_error"])
    assert letter["attempts"] == 3
    assert await committed(client, topic, topic) == 3


async def test_an_ordered_consumer_that_waited_for_its_topic_retries_as_often_as_its_group_says(
    client: eruca.AsyncClient, name: str
) -> None:
    await client.admin.groups.create(name, start="earliest", retries_max=2)
    attempts: list[int] = []
    consumer = client.push_consumer(
        name, ordered=True, wait_for_topics=True, retries=eruca.Retries(suspend_seconds=0.02)
    )

    @consumer.on(name)
    async def handle(message: eruca.ReceivedMessage) -> None:
        attempts.append(message.attempt)
        raise ValueError("poison")

    async with consumer:
        await client.admin.create_topic(name, queue_count=1)
        await send(client, name, [0])
        await until_told(lambda: is_committed(client, name, 1))

    assert attempts == [1, 2, 3]
    assert len(await dead_letters(client, name)) == 1


async def test_in_an_ordered_batch_only_what_is_exhausted_dies(
    client: eruca.AsyncClient, topic: str
) -> None:
    seen: list[list[str]] = []
    consumer = client.push_consumer(
        topic,
        start="earliest",
        ordered=True,
        retries=eruca.Retries(retries_max=1, suspend_seconds=0.02),
        batch_count_max=4,
    )

    @consumer.on(topic)
    async def handle(messages: list[eruca.ReceivedMessage]) -> None:
        seen.append([message.text() for message in messages])
        if messages[0].text() == "0":
            raise ValueError("poison")

    await send(client, topic, range(2), key="one queue")
    async with consumer:
        await until_told(lambda: is_committed(client, topic, 2))

    assert len(await dead_letters(client, topic)) in (1, 2)
    assert len(seen) >= 2


async def test_a_poison_message_of_a_blocked_key_dies_and_its_key_goes_on(
    client: eruca.AsyncClient, name: str
) -> None:
    await client.admin.create_topic(name, queue_count=1)
    seen: list[str] = []
    consumer = client.push_consumer(
        name,
        start="earliest",
        ordered=True,
        retries=eruca.Retries(on_poison="block_key", retries_max=1, suspend_seconds=0.02),
    )

    @consumer.on(name)
    def handle(message: eruca.ReceivedMessage) -> None:
        seen.append(message.text())
        if message.text() == "a0":
            raise ValueError("poison")

    for n in range(2):
        for key in "ab":
            await send(client, name, [f"{key}{n}"], key=key)
    async with consumer:
        await until(lambda: len(seen) == 5)

    assert [text for text in seen if text[0] == "a"] == ["a0", "a0", "a1"]
    assert [text for text in seen if text[0] == "b"] == ["b0", "b1"]
    assert len(await dead_letters(client, name)) == 1


async def test_an_ordered_message_may_fail_many_times_and_keeps_its_place(
    client: eruca.AsyncClient, topic: str
) -> None:
    seen: list[tuple[str, int]] = []
    consumer = client.push_consumer(
        topic,
        start="earliest",
        ordered=True,
        retries=eruca.Retries(retries_max=30, suspend_seconds=0.01),
    )

    @consumer.on(topic)
    async def handle(message: eruca.ReceivedMessage) -> None:
        seen.append((message.text(), message.attempt))
        if message.text() == "1" and message.attempt <= 30:
            raise ValueError("once more")

    await send(client, topic, range(3), key="one queue")
    async with consumer:
        await until(lambda: len(seen) == 33)

    assert seen == [("0", 1), *(("1", attempt) for attempt in range(1, 32)), ("2", 1)]
    assert await committed(client, topic, topic) == 3


async def test_ordered_messages_of_three_keys_that_fail_at_first_keep_their_order(
    client: eruca.AsyncClient, topic: str
) -> None:
    done: dict[str, list[str]] = {key: [] for key in "abc"}
    consumer = client.push_consumer(
        topic, start="earliest", ordered=True, retries=eruca.Retries(suspend_seconds=0.01)
    )

    @consumer.on(topic)
    async def handle(message: eruca.ReceivedMessage) -> None:
        if message.attempt == 1 and int(message.text()) % 4 == 0:
            raise ValueError("not at first")
        assert message.sharding_key is not None
        done[message.sharding_key].append(message.text())

    for key in "abc":
        await send(client, topic, range(20), key=key)
    async with consumer:
        await until(lambda: sum(map(len, done.values())) == 60)

    assert done == {key: [str(number) for number in range(20)] for key in "abc"}


async def test_by_default_a_suspended_queue_waits_for_a_second(
    client: eruca.AsyncClient, topic: str
) -> None:
    times: list[float] = []
    consumer = client.push_consumer(topic, start="earliest", ordered=True)

    @consumer.on(topic)
    async def handle(message: eruca.ReceivedMessage) -> None:
        times.append(time.monotonic())
        if message.attempt == 1:
            raise ValueError("not at first")

    await send(client, topic, [0])
    async with consumer:
        await until(lambda: len(times) == 2)

    assert times[1] - times[0] >= 1.0
