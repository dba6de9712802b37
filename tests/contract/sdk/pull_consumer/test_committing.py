"""The pull consumer: what a commit covers, and what is read again."""

from __future__ import annotations

import pytest

import eruca
from support.pull_consumers import committed, numbers, poll_all, send

pytestmark = pytest.mark.anyio


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
