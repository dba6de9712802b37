"""Replicas that append runs of a source's log.

The source is a real broker whose log holds records of every kind, in segments that are small.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.lived_stores import CLOCK, settings


@asynccontextmanager
async def open_replica(
    directory: Path, flush_mode: FlushMode = FlushMode.ASYNC
) -> AsyncIterator[MessageStore]:
    store = await MessageStore.open(
        directory, settings(is_replica=True, flush_mode=flush_mode), CLOCK
    )
    yield store
    with suppress(AssertionError):  # it has been abandoned, or replaced
        await store.close()


async def copied(replica: MessageStore, run: bytes) -> None:
    """Have *replica* append a run and publish it."""
    await replica.role.copy(memoryview(run), replica.log_max_offset)
    replica.role.confirm(replica.durable_offset)


async def catch_up(
    replica: MessageStore, source: MessageStore, random: Random, *, until: int | None = None
) -> list[int]:
    """Feed *replica* runs of random sizes, up to a log offset; return where they began."""
    begins = []
    end = source.visible_offset if until is None else until
    while (offset := replica.log_max_offset) < end:
        run = b"".join(source.log.run(offset, random.randrange(1, 20_000)))
        assert run
        await copied(replica, run)
        assert replica.visible_offset == replica.log_max_offset == offset + len(run)
        begins.append(offset)
    return begins
