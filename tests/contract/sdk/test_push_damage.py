"""Damaged messages against real brokers: no handler gets them, and none is passed in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

import eruca
from support.brokers import rot
from support.in_process_cluster import InProcessCluster
from support.push import Gatherer
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio


async def send_with_one_damaged(
    client: eruca.AsyncClient, cluster: InProcessCluster, topic: str
) -> eruca.MessageQueue:
    """Send three messages to one queue, and change a bit of the second on the disk."""
    queue = eruca.MessageQueue(topic, "broker-a", 0)
    async with client.producer() as producer:
        for text in ("before", f"rotten {topic}", "behind"):
            await producer.send(eruca.Message(topic, text), queue=queue)
    rot(cluster.brokers["broker-a"], f"rotten {topic}".encode())
    return queue


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "orderly"])
async def test_a_dead_letter_stands_for_a_damaged_message_before_a_commit_passes_it(
    client: eruca.AsyncClient, cluster: InProcessCluster, topic: str, *, ordered: bool
) -> None:
    queue = await send_with_one_damaged(client, cluster, topic)
    gatherer, told = Gatherer(), Gatherer()
    consumer = client.push_consumer(
        topic,
        start="earliest",
        ordered=ordered,
        listeners=eruca.Listeners(on_damaged=told.messages.append),
    )
    consumer.subscribe(topic, "*", gatherer)

    async with consumer:
        await gatherer.until_count(2)
        await told.until_count(1)

        async def letters() -> list[eruca.HeldDeadLetter]:
            return [letter async for letter in client.admin.groups.dead_letters(topic)]

        found = await until_told(letters, bool)
        assert consumer.damaged_count == 1
        # A close does not wait for the answer about the letter: the next owner would ask again.
        async with client.pull_consumer(topic, topics=topic) as reader:
            await until_told(lambda: reader.committed(queue), lambda offset: offset == 3)

    assert gatherer.texts == ["before", "behind"]
    [held] = found
    letter = held.letter
    assert (letter.reason, letter.origin_queue_id, letter.origin_offset) == ("damaged", 0, 1)
    assert letter.last_error is not None
    assert told.messages[0].damage is not None


async def test_a_broadcasting_member_is_told_of_a_damaged_message_and_goes_on(
    client: eruca.AsyncClient, cluster: InProcessCluster, topic: str, tmp_path: Path
) -> None:
    await send_with_one_damaged(client, cluster, topic)
    gatherer, told = Gatherer(), Gatherer()
    consumer = client.push_consumer(
        topic,
        message_model="broadcasting",
        start="earliest",
        offsets=eruca.Offsets(directory=str(tmp_path)),
        listeners=eruca.Listeners(on_damaged=told.messages.append),
    )
    consumer.subscribe(topic, "*", gatherer)

    async with consumer:
        await gatherer.until_count(2)
        await until(lambda: told.messages)

    assert sorted(gatherer.texts) == ["before", "behind"]
