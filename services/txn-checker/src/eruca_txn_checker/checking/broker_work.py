"""All that is done about one broker while its lease is ours: following its log, and checking."""

from __future__ import annotations

import asyncio
from typing import Final

from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.log_projector import LogProjector
from eruca_txn_checker.checking.due_work import DueWork

CLEANING_SECONDS: Final = 60.0


class TransactionWork:
    """The loops of one broker.

    Args:
        projector: Follows its log.
        due: Checks what is due.
        poll_seconds: It looks for what is no more often than that.
    """

    def __init__(self, projector: LogProjector, due: DueWork, *, poll_seconds: float) -> None:
        self.projector = projector
        self.due = due
        name = projector.broker_name
        self._following = BackgroundLoop(f"log {name}", projector.step, period_seconds=0)
        self._checking = BackgroundLoop(
            f"checks {name}", due.step, period_seconds=poll_seconds, rest_seconds=poll_seconds
        )
        self._cleaning = BackgroundLoop(
            f"history {name}", due.delete_old, period_seconds=CLEANING_SECONDS
        )

    @property
    def fault(self) -> str | None:
        """Why the broker cannot be worked on just now."""
        return self.projector.fault or self.due.fault

    def start(self) -> None:
        """Begin."""
        for loop in (self._following, self._checking, self._cleaning):
            loop.start()

    def wake(self) -> None:
        """Look for what is due: something has happened."""
        self._checking.wake()

    async def stop(self) -> None:
        """End; called when the lease is given back, or lost."""
        self.projector.begin_stop()
        await asyncio.gather(
            *(loop.stop() for loop in (self._following, self._checking, self._cleaning))
        )
