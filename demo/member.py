"""``python -m demo.member NAMESRV GROUP TOPIC FILE``: a member that records each handled flight.

For each flight it appends a :class:`Handled` to FILE before it acknowledges the message. So every
flight in the file was handled, even if the member is killed right after.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import eruca
from demo.journey import RowNumber

SESSION_SECONDS: Final = 3.0  # without a heartbeat for so long, its queues go to others
_BATCH: Final = 64
_COMMIT_SECONDS: Final = 0.1  # a kill repeats at most the work of so long
_RECORD: Final = struct.Struct("<I2s")


class Handled(NamedTuple):
    """A flight that was handled."""

    row: int  # of the file
    carrier: str  # its two letters


def read_handled(path: Path) -> Iterator[Handled]:
    """Yield the flights that a member has handled so far; skip an incomplete last record."""
    data = path.read_bytes() if path.exists() else b""
    whole = len(data) - len(data) % _RECORD.size
    for row, carrier in _RECORD.iter_unpack(data[:whole]):
        yield Handled(row, carrier.decode())


def count_handled(path: Path) -> int:
    """Return the number of flights that a member has handled so far, including repeated ones."""
    return path.stat().st_size // _RECORD.size if path.exists() else 0


async def consume(namesrv_url: str, group: str, topic: str, path: Path) -> None:
    """Run a member until a signal, then hand over the queues and leave."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def note(messages: list[eruca.ReceivedMessage]) -> None:
        records = [
            _RECORD.pack(message.json(RowNumber).row, (message.tag or "").encode())
            for message in messages
        ]
        os.write(descriptor, b"".join(records))

    try:
        async with eruca.AsyncClient(namesrv_url) as client:
            consumer = client.push_consumer(
                group,
                batch_count_max=_BATCH,
                concurrency=4,
                membership=eruca.Membership(session_seconds=SESSION_SECONDS),
                offsets=eruca.Offsets(commit_seconds=_COMMIT_SECONDS),
            )
            consumer.subscribe(topic, handler=note)
            await consumer.run()
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
