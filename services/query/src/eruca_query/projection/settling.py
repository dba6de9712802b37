"""Settle chunks: build a bare one's indexes, or update an indexed one's summaries and statistics.

It takes as long as a chunk has rows, so it has a transaction of its own, with a limit of its own. A
block's transaction would be cancelled, and the next attempt as well: its log would stand still.

Concurrency rules: only the transaction that has locked a chunk's row in ``chunks`` settles it. A
block of the same chunk waits for that lock, so an open chunk is settled before the next block.
Closed chunks are settled beside the blocks that follow, one at a time in a process, because each
takes a connection and a processor. A log whose next chunk is full waits for the one before. So no
log is read faster than its chunks can be indexed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog
from sqlalchemy import Select, select
from sqlalchemy.sql import Executable

from eruca.contract.errors import DatabaseUnavailableError
from eruca_postgres.database import Database
from eruca_query.core.chunk_states import Unsettled
from eruca_query.projection.chunks import settle_rows
from eruca_query.projection.tables import chunks

SETTLE_SECONDS: Final = 3_600.0  # 100 million rows on a slow disk
LONG_SECONDS: Final = 10.0  # more are logged

_log = structlog.get_logger()


class Settling:
    """Settles the chunks that the blocks of one log have named.

    Args:
        database: Holds them.
        turn: Taken by a closed chunk; shared by all logs of the process.
    """

    def __init__(self, database: Database, turn: asyncio.Lock) -> None:
        self._database = database
        self._turn = turn
        self._beside: asyncio.Task[None] | None = None  # settles closed chunks

    async def settle(self, unsettled: Unsettled) -> None:
        """Settle an open chunk now, and begin to settle closed ones after those before them.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unreachable, or was too slow. A later block
                names the open chunk again; upkeep settles closed ones.
        """
        if unsettled.closed or (self._beside is not None and self._beside.done()):
            await self.finish()
        if unsettled.closed:
            self._beside = asyncio.create_task(self._settle_closed(unsettled.closed))
        if unsettled.open is not None:
            await settle_chunk(self._database, unsettled.open)

    async def finish(self) -> None:
        """Wait for the closed chunks."""
        beside, self._beside = self._beside, None
        if beside is not None:
            await beside

    async def stop(self) -> None:
        """Settle no more; what is under way is rolled back, and left to upkeep."""
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)

    async def _settle_closed(self, numbers: Sequence[int]) -> None:
        async with self._turn:
            for number in numbers:
                with suppress(DatabaseUnavailableError):  # logged; upkeep settles it
                    await settle_chunk(self._database, number)


async def settle_chunk(database: Database, number: int) -> bool:
    """Settle a chunk, after those who work on it; return whether it still exists.

    Raises:
        DatabaseUnavailableError: PostgreSQL is unreachable, or was too slow. Nothing has changed.
    """
    its = chunks.c
    wanted = select(its.chunk, its.is_indexed).where(its.chunk == number).with_for_update()
    return await settle_first(database, wanted) is not None


async def settle_first(
    database: Database, wanted: Select[tuple[int, bool]], *before: Executable
) -> int | None:
    """Settle the chunk that *wanted* finds and locks; return its number, or None if there is none.

    Args:
        database: The read model's.
        wanted: Returns one chunk's number, and whether it is indexed.
        before: Executed first in the same transaction.

    Raises:
        DatabaseUnavailableError: PostgreSQL is unreachable, or was too slow. Nothing has changed.
    """
    number: int | None = None
    began = time.monotonic()
    try:
        async with database.transaction(SETTLE_SECONDS) as connection:
            for statement in before:
                await connection.execute(statement)
            row = (await connection.execute(wanted)).first()
            if row is None:
                return None
            number = row.chunk
            await settle_rows(connection, row.chunk, is_indexed=row.is_indexed)
    except DatabaseUnavailableError as error:
        if number is not None:
            _log.warning("chunk not indexed; upkeep tries again", chunk=number, why=error.detail)
        raise
    seconds = time.monotonic() - began
    if seconds > LONG_SECONDS:
        _log.info("indexing a chunk took long", chunk=number, seconds=round(seconds, 1))
    return number
