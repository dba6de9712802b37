"""The clock that all instances share: PostgreSQL's.

One instance writes times that another one reads: when a check was opened, when a producer was last
seen. The clocks of their machines may disagree, so such times are taken from PostgreSQL, which all
of them can ask. Its clock is compared with the machine's own from time to time.
"""

from __future__ import annotations

from sqlalchemy import text

from eruca_chassis.clock import Clock
from eruca_postgres.database import Database
from eruca_txn_checker.core.other_clock import OtherClock

_NOW_MS = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")


class PostgresClock:
    """PostgreSQL's wall clock and the machine's monotonic clock; a :class:`Clock`.

    Args:
        database: The PostgreSQL whose clock counts.
        clock: The machine's clock.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._theirs = OtherClock()

    def now_ms(self) -> int:
        """Return PostgreSQL's time, estimated from the last comparison."""
        return self._theirs.there(self._clock.now_ms())

    def monotonic(self) -> float:
        """Return the machine's monotonic time in seconds."""
        return self._clock.monotonic()

    def boottime(self) -> float:
        """Return the same, but count the time in which the machine was suspended."""
        return self._clock.boottime()

    async def compare(self) -> bool:
        """Compare the clocks; return whether one of the two was set since the last comparison.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unreachable; the last comparison stays valid.
        """
        before_ms = self._theirs.difference_ms
        async with self._database.transaction() as connection:
            asked_ms = self._clock.now_ms()
            told_ms: int = (await connection.execute(_NOW_MS)).scalar_one()
            self._theirs.note(told_ms, asked_ms=asked_ms, answered_ms=self._clock.now_ms())
        return self._theirs.difference_ms != before_ms
