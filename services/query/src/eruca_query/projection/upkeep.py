"""Drop chunks that expired or belong to no build any more, and settle those that were left.

A chunk is left bare, or without statistics, by a build that was replaced, by a log that cannot be
read on, by an instance of an earlier version, or by one that was killed or failed between a block
and its settling. It is complete, only slow to search.

Every instance does it, one chunk at a time, and skips a chunk on which another instance works.
Dropping waits for readers, but not long, since all other requests would queue behind it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import structlog
from sqlalchemy import (
    ColumnElement,
    Double,
    Select,
    and_,
    delete,
    exc,
    func,
    literal_column,
    or_,
    select,
    text,
)

from eruca.contract.errors import DatabaseUnavailableError
from eruca_chassis.clock import Clock
from eruca_postgres.database import Database
from eruca_postgres.tables import log_positions
from eruca_query.projection.chunks import drop_partitions
from eruca_query.projection.damaged_rows import drop_damaged
from eruca_query.projection.settling import settle_first
from eruca_query.projection.tables import brokers, builds, chunks

PERIOD_SECONDS: Final = 10.0
STILL_SECONDS: Final = 60.0  # without a block from a log, nobody fills its chunk
_LOCK_TIMEOUT: Final = text("SET LOCAL lock_timeout = '2s'")
_LOCK_NOT_AVAILABLE: Final = "55P03"
_STALE: Final = 0.75  # of the rows: with statistics about fewer, a closed chunk is settled
_COUNTED_ROWS: Final = literal_column(
    "(SELECT reltuples FROM pg_class WHERE oid = to_regclass('messages_' || chunks.chunk))", Double
)

_log = structlog.get_logger()


class Upkeep:
    """Drops chunks that are no longer needed, and settles those left; a loop calls ``step``.

    Args:
        database: The read model's.
        clock: Tells which chunks have expired.
        retention_ms: How long rows are kept after their messages were stored.
    """

    def __init__(self, database: Database, clock: Clock, *, retention_ms: int) -> None:
        self.dropped_count = 0  # since the start
        self.indexed_count = 0
        self._database = database
        self._clock = clock
        self._retention_ms = retention_ms

    async def step(self) -> None:
        """Drop everything that can be dropped, and settle the chunks that were left."""
        try:
            await self._drop_all()
            last = 0
            while (chunk := await self._settle_one(after=last)) is not None:
                last = chunk
                self.indexed_count += 1
                await self._drop_all()  # settling may have taken long
        except DatabaseUnavailableError:
            return  # the service reports it elsewhere
        except exc.DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            _log.info("a chunk is in use for too long; its upkeep is done later")

    async def _drop_all(self) -> None:
        while await self._drop_one():
            self.dropped_count += 1

    async def _drop_one(self) -> bool:
        async with self._database.transaction() as connection:
            await connection.execute(_LOCK_TIMEOUT)
            chunk = await connection.scalar(self._droppable())
            if chunk is None:
                return False
            await drop_partitions(connection, chunk)
            await drop_damaged(connection, chunk)
            await connection.execute(delete(chunks).where(chunks.c.chunk == chunk))
        _log.info("chunk dropped", chunk=chunk)
        return True

    async def _settle_one(self, *, after: int) -> int | None:
        chunk = await settle_first(self._database, _left(after), _LOCK_TIMEOUT)
        if chunk is not None:
            _log.info("chunk indexed", chunk=chunk)
        return chunk

    def _droppable(self) -> Select[Any]:
        too_old = chunks.c.last_ms < self._clock.now_ms() - self._retention_ms
        return _first_free(or_(~_belongs_to_a_build(), too_old))


def _left(after: int) -> Select[Any]:
    """Return a statement for a chunk after one that nobody settles: a bare one, or a closed one."""
    is_read = (
        select(log_positions.c.log_offset)
        .join(brokers, brokers.c.broker_name == log_positions.c.broker_name)
        .where(
            brokers.c.broker_no == chunks.c.broker_no,
            log_positions.c.updated_at > func.now() - timedelta(seconds=STILL_SECONDS),
        )
        .exists()
    )
    is_bare = ~chunks.c.is_indexed & (~chunks.c.is_open | ~is_read)
    # PostgreSQL counts a table's rows when it updates the statistics; it may estimate them.
    is_stale = _STALE * chunks.c.row_count > _COUNTED_ROWS
    left = or_(is_bare, and_(chunks.c.is_indexed, ~chunks.c.is_open, is_stale))
    return _first_free(left & (chunks.c.chunk > after)).add_columns(chunks.c.is_indexed)


def _belongs_to_a_build() -> ColumnElement[bool]:
    return (
        select(builds.c.build)
        .where(builds.c.broker_no == chunks.c.broker_no, builds.c.build == chunks.c.build)
        .exists()
    )


def _first_free(condition: ColumnElement[bool]) -> Select[Any]:
    """Return a statement for the first chunk that fits and that no other transaction has locked."""
    return (
        select(chunks.c.chunk)
        .where(condition)
        .order_by(chunks.c.chunk)
        .limit(1)
        .with_for_update(skip_locked=True, of=chunks)
    )
