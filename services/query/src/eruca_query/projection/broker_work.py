"""The work on one broker while this instance holds its claim: following its log.

The chunks that a block has named are settled (:mod:`.settling`). If that fails, the log is read on,
and upkeep settles them.
"""

from __future__ import annotations

from contextlib import suppress

from eruca.contract.errors import DatabaseUnavailableError
from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.log_projector import LogProjector
from eruca_query.projection.message_projection import MessageProjection
from eruca_query.projection.settling import Settling


class FollowedBroker:
    """A log projector in a loop.

    Args:
        projector: Follows the log.
        projection: Writes its rows.
        settling: Settles their chunks.
    """

    def __init__(
        self, projector: LogProjector, projection: MessageProjection, settling: Settling
    ) -> None:
        self.projector = projector
        self._projection = projection
        self._settling = settling
        # No pause between steps: a step itself waits for news.
        self._loop = BackgroundLoop(f"log of {projector.broker_name}", self.step, period_seconds=0)

    @property
    def fault(self) -> str | None:
        """The reason why the log cannot be followed at present, or None."""
        return self.projector.fault

    async def step(self) -> None:
        """Fold one block, and settle the chunks that it named."""
        await self.projector.step()
        with suppress(DatabaseUnavailableError):  # logged; the next block reports it
            await self._settling.settle(self._projection.take_unsettled())

    def start(self) -> None:
        """Begin."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop; the write in progress is finished first, unless it takes long."""
        self.projector.begin_stop()
        await self._loop.stop()
        await self._settling.stop()
