"""The time that all instances share: PostgreSQL's.

What one instance writes down another one reads: when a check was opened, when a producer was last
seen. The clocks of their machines may disagree, so such times are told by the one that all of them
can ask. It is compared with the machine's own from time to time.
"""

from __future__ import annotations

from sqlalchemy import text

from eruca_chassis.clock import Clock
from eruca_postgres.database import Database
from eruca_txn_checker.core.other_clock import OtherClock

_NOW_MS = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")


class PostgresClock:
    """PostgreSQL's wall clock, and the machine's monotonic one; a :class:`Clock`.

    Args:
        database: Whose clock it is.
        clock: The machine's.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._theirs = OtherClock()

    def now_ms(self) -> int:
        """Return PostgreSQL's time, as far as the last comparison tells."""
        return self._theirs.there(self._clock.now_ms())

    def monotonic(self) -> float:
        """Return seconds since some moment in the past; never goes back."""
        return self._clock.monotonic()

    async def compare(self) -> bool:
        """Learn what PostgreSQL's clock says; tell whether one of the two was set.

        Raises:
            DatabaseUnavailableError: PostgreSQL is not there; the last comparison counts.
        """
        before_ms = self._theirs.difference_ms
        async with self._database.transaction() as connection:
            asked_ms = self._clock.now_ms()
            told_ms: int = (await connection.execute(_NOW_MS)).scalar_one()
            self._theirs.note(told_ms, asked_ms=asked_ms, answered_ms=self._clock.now_ms())
        return self._theirs.difference_ms != before_ms
