"""The work on one broker while this instance holds its claim: following its log.

Between two blocks the chunks are settled that the last one has named, so the log is not read faster
than its chunks can be indexed. If that fails, the log is read on, and upkeep settles them.
"""

from __future__ import annotations

from eruca.contract.errors import DatabaseUnavailableError
from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.database import Database
from eruca_postgres.log_projector import LogProjector
from eruca_query.projection.message_projection import MessageProjection
from eruca_query.projection.settling import settle_chunk


class FollowedBroker:
    """A log projector in a loop.

    Args:
        projector: Follows the log.
        projection: Writes its rows.
        database: Holds them.
    """

    def __init__(
        self, projector: LogProjector, projection: MessageProjection, database: Database
    ) -> None:
        self.projector = projector
        self._projection = projection
        self._database = database
        # No pause between steps: a step itself waits for news.
        self._loop = BackgroundLoop(f"log of {projector.broker_name}", self.step, period_seconds=0)

    @property
    def fault(self) -> str | None:
        """The reason why the log cannot be followed at present, or None."""
        return self.projector.fault

    async def step(self) -> None:
        """Fold one block, then settle the chunks that it named."""
        await self.projector.step()
        try:
            for number in self._projection.take_unsettled():
                await settle_chunk(self._database, number)
        except DatabaseUnavailableError:
            return  # logged; the next block reports a database that is away

    def start(self) -> None:
        """Begin."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop; the write in progress is finished first, unless it takes long."""
        self.projector.begin_stop()
        await self._loop.stop()
