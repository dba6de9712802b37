"""Settle chunks: build a bare one's indexes, or update an indexed one's summaries and statistics.

It takes as long as a chunk has rows, so it has a transaction of its own, with a limit of its own. A
block's transaction would be cancelled, and the next attempt as well: its log would stand still.

Concurrency rule: only the transaction that has locked a chunk's row in ``chunks`` settles it. A
block of the same chunk waits for that lock.
"""

from __future__ import annotations

import time
from typing import Final

import structlog
from sqlalchemy import Select, select
from sqlalchemy.sql import Executable

from eruca.contract.errors import DatabaseUnavailableError
from eruca_postgres.database import Database
from eruca_query.projection.chunks import settle_rows
from eruca_query.projection.tables import chunks

SETTLE_SECONDS: Final = 3_600.0  # 100 million rows on a slow disk
LONG_SECONDS: Final = 10.0  # more are logged

_log = structlog.get_logger()


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
