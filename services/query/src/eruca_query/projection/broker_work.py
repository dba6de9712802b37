"""The work on one broker while this instance holds its claim: following its log."""

from __future__ import annotations

from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.log_projector import LogProjector


class FollowedBroker:
    """A log projector in a loop."""

    def __init__(self, projector: LogProjector) -> None:
        self.projector = projector
        # No pause between steps: a step itself waits for news.
        self._loop = BackgroundLoop(
            f"log of {projector.broker_name}", projector.step, period_seconds=0
        )

    @property
    def fault(self) -> str | None:
        """The reason why the log cannot be followed at present, or None."""
        return self.projector.fault

    def start(self) -> None:
        """Begin."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop; the write in progress is finished first."""
        self.projector.begin_stop()
        await self._loop.stop()
