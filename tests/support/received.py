"""Messages as a consumer without a group gets them."""

from __future__ import annotations

import eruca


async def received(
    client: eruca.AsyncClient, topic: str, count: int
) -> list[eruca.ReceivedMessage]:
    """Return the first *count* messages of *topic*, as they come."""
    messages: list[eruca.ReceivedMessage] = []
    async with client.pull_consumer(topics=topic) as consumer:
        while len(messages) < count:
            messages += await consumer.poll()
    return messages
