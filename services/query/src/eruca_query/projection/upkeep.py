"""Drop chunks: expired ones, and those that belong to no build any more.

Every instance does it, one chunk at a time, and skips a chunk that another instance is dropping.
Dropping waits for readers, but not long, since all other requests would queue behind it.
"""

from __future__ import annotations

from typing import Any, Final

import structlog
from sqlalchemy import Select, delete, exc, or_, select, text

from eruca.contract.errors import DatabaseUnavailableError
from eruca_chassis.clock import Clock
from eruca_postgres.database import Database
from eruca_query.projection.chunks import drop_partitions
from eruca_query.projection.damaged_rows import drop_damaged
from eruca_query.projection.tables import builds, chunks

PERIOD_SECONDS: Final = 10.0
_LOCK_TIMEOUT: Final = text("SET LOCAL lock_timeout = '2s'")
_LOCK_NOT_AVAILABLE: Final = "55P03"

_log = structlog.get_logger()


class Upkeep:
    """Drops chunks that are no longer needed; ``step`` is called by a loop.

    Args:
        database: The read model's.
        clock: Tells which chunks have expired.
        retention_ms: How long rows are kept after their messages were stored.
    """

    def __init__(self, database: Database, clock: Clock, *, retention_ms: int) -> None:
        self.dropped_count = 0  # since the start
        self._database = database
        self._clock = clock
        self._retention_ms = retention_ms

    async def step(self) -> None:
        """Drop everything that can be dropped."""
        try:
            while await self._drop_one():
                self.dropped_count += 1
        except DatabaseUnavailableError:
            return  # the service reports it elsewhere
        except exc.DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            _log.info("a chunk has readers for too long; it is dropped later")

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

    def _droppable(self) -> Select[Any]:
        is_kept = (
            select(builds.c.build)
            .where(
                builds.c.broker_no == chunks.c.broker_no,
                builds.c.build == chunks.c.build,
            )
            .exists()
        )
        too_old = chunks.c.last_ms < self._clock.now_ms() - self._retention_ms
        return (
            select(chunks.c.chunk)
            .where(or_(~is_kept, too_old))
            .order_by(chunks.c.chunk)
            .limit(1)
            .with_for_update(skip_locked=True, of=chunks)
        )
