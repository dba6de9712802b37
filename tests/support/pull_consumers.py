"""Sending to a pull consumer, and polling it."""

from __future__ import annotations

import eruca


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


# Committing.


async def committed(client: eruca.AsyncClient, group: str, topic: str) -> int:
    """Return how many messages of a topic the group is past."""
    offsets = await client.admin.groups.offsets(group, topic=topic)
    return sum(offset.committed_offset or 0 for offset in offsets.values())
