"""Drop chunks that expired or belong to no build any more, and index bare ones that nobody fills.

A bare chunk is left over by a build that was replaced, by a log that cannot be read on, or by an
instance of an earlier version. It is complete, only slow to search.

Every instance does it, one chunk at a time, and skips a chunk on which another instance works.
Dropping waits for readers, but not long, since all other requests would queue behind it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import structlog
from sqlalchemy import ColumnElement, Select, delete, exc, func, or_, select, text

from eruca.contract.errors import DatabaseUnavailableError
from eruca_chassis.clock import Clock
from eruca_postgres.database import Database
from eruca_postgres.tables import log_positions
from eruca_query.projection.chunks import drop_partitions, index_chunk
from eruca_query.projection.damaged_rows import drop_damaged
from eruca_query.projection.tables import brokers, builds, chunks

PERIOD_SECONDS: Final = 10.0
STILL_SECONDS: Final = 60.0  # without a block from a log, nobody fills its chunk
_LOCK_TIMEOUT: Final = text("SET LOCAL lock_timeout = '2s'")
_LOCK_NOT_AVAILABLE: Final = "55P03"

_log = structlog.get_logger()


class Upkeep:
    """Drops chunks that are no longer needed, and indexes bare ones; a loop calls ``step``.

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
        """Drop everything that can be dropped, and index the bare chunks that nobody fills."""
        try:
            while await self._drop_one():
                self.dropped_count += 1
            while await self._index_one():
                self.indexed_count += 1
        except DatabaseUnavailableError:
            return  # the service reports it elsewhere
        except exc.DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            _log.info("a chunk is in use for too long; its upkeep is done later")

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

    async def _index_one(self) -> bool:
        async with self._database.transaction() as connection:
            await connection.execute(_LOCK_TIMEOUT)
            chunk = await connection.scalar(_left_bare())
            if chunk is None:
                return False
            await index_chunk(connection, chunk)
        _log.info("chunk indexed", chunk=chunk)
        return True

    def _droppable(self) -> Select[Any]:
        too_old = chunks.c.last_ms < self._clock.now_ms() - self._retention_ms
        return _first_free(or_(~_belongs_to_a_build(), too_old))


def _left_bare() -> Select[Any]:
    is_read = (
        select(log_positions.c.log_offset)
        .join(brokers, brokers.c.broker_name == log_positions.c.broker_name)
        .where(
            brokers.c.broker_no == chunks.c.broker_no,
            log_positions.c.updated_at > func.now() - timedelta(seconds=STILL_SECONDS),
        )
        .exists()
    )
    return _first_free(~chunks.c.is_indexed & (~chunks.c.is_open | ~is_read))


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
