"""All work on one broker while its claim is held here: follow its log, and check."""

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
        projector: Follows the broker's log.
        due: Handles the due transactions.
        poll_seconds: Minimum time between two looks for due transactions.
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
        """The reason why the broker cannot be worked on just now, or None."""
        return self.projector.fault or self.due.fault

    def start(self) -> None:
        """Start the loops."""
        for loop in (self._following, self._checking, self._cleaning):
            loop.start()

    def wake(self) -> None:
        """Look for due transactions now."""
        self._checking.wake()

    async def stop(self) -> None:
        """Stop the loops; called when the claim is released or lost."""
        self.projector.begin_stop()
        await asyncio.gather(
            *(loop.stop() for loop in (self._following, self._checking, self._cleaning))
        )
