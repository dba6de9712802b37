"""The programs' common part: they work until they are stopped, and count their successes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import eruca
from support.waiting import until

PACE_SECONDS = 0.01  # between two requests of one task


class Work:
    """One program, or several of a kind.

    Attributes:
        progress: The number of successes so far.
        is_over: Set when it is to finish what it has begun, and to return.
    """

    def __init__(self) -> None:
        self.progress = 0
        self.is_over = asyncio.Event()
        self.failure: BaseException | None = None

    async def run(self) -> None:
        """Work until :attr:`is_over`; then return once all that it expects has come."""
        raise NotImplementedError

    async def before(self) -> None:
        """Prepare for a change of the master."""

    async def after(self) -> None:
        """Go on after a change of the master."""

    async def pause(self) -> None:
        """Let others work."""
        await asyncio.sleep(PACE_SECONDS)  # the pace of the load

    async def more(self, count: int) -> None:
        """Return after so many more successes, or once the program has failed."""
        wanted = self.progress + count
        await until(lambda: self.progress >= wanted or self.failure is not None)


async def everything(client: eruca.AsyncClient, topic: str) -> list[eruca.ReceivedMessage]:
    """Return all messages of a topic, in the order of each queue."""
    queues = await client.admin.queues(topic)
    left = sum(offsets.max_offset - offsets.min_offset for offsets in queues.values())
    found: list[eruca.ReceivedMessage] = []
    async with client.pull_consumer(topics=topic) as consumer:
        while len(found) < left:
            found += await consumer.poll(wait_seconds=20)
    return found


def texts(messages: Iterable[eruca.ReceivedMessage]) -> list[str]:
    """Return the messages' texts."""
    return [message.text() for message in messages]
