"""Feeding projections, and what is done where one cannot be written.

A projection that fails lags: the log goes on, whoever needs the projection is told, and it is
given what it lacks later (:mod:`eruca_broker.store.queues.lagging`). Only where room is short, or
open files or memory, are writes refused: the log will not have any either, and it comes back by
itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from eruca.contract.errors import UnavailableError
from eruca_broker.store.checkpoints import unflushed_reason
from eruca_broker.store.dispatcher import Dispatcher
from eruca_broker.store.files.refusals import is_scarcity, refusal_of
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.lagging import KEY_INDEX, Key, reason_of
from eruca_chassis.flushing import FlushError

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Projection:
    """The progress of a projection."""

    name: str
    log_offset: int  # it has all before it
    failure: str | None = None  # why it lacks what comes then; or what is wrong in it

    def or_failure(self, error: FlushError | None) -> Projection:
        """Return it with the fault that a failed flush is, unless it has another."""
        if error is None or self.failure is not None:
            return self
        return replace(self, failure=unflushed_reason(error))


class Projections:
    """The consume queues and the key index of one store, as they follow the log.

    Args:
        dispatcher: Writes them.
        queues: Know which of them are damaged.
        caught_up: Told the queues that lagged and lack nothing any more.
        begin_of: Tells from which log offset on a topic's records count.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        queues: ConsumeQueues,
        *,
        caught_up: Callable[[Sequence[Key]], None],
        begin_of: Callable[[str], int],
    ) -> None:
        self._dispatcher = dispatcher
        self._queues = queues
        self._tell_caught_up = caught_up
        self._begin_of = begin_of
        self._catching_up = asyncio.Lock()

    def feed(self, appended: Sequence[Appended], end_offset: int) -> UnavailableError | None:
        """Make *appended*, which fill the log up to *end_offset*, visible.

        They are in the log, flushed and acknowledged, whatever fails; only who reads them waits.

        Returns:
            Why no more is to be written now; None where nothing is short.
        """
        shortage: UnavailableError | None = None
        for (topic, queue_id), error in self._dispatcher.dispatch(appended, end_offset):
            what = f"the consume queue {queue_id} of {topic!r} lags"
            if isinstance(error, OSError) and is_scarcity(error):
                shortage = refusal_of(error, what)
            else:
                logger.error(what, reason=reason_of(error))
        try:
            self._dispatcher.bound_backlog()
        except OSError as error:
            if is_scarcity(error):
                return refusal_of(error, "the key index failed")
            logger.error("the key index lags", reason=reason_of(error))
            self._dispatcher.let_index_lag(error)
        return shortage

    async def retry(self) -> None:
        """Try again to write those that a full or failing disk has stopped.

        Raises:
            OSError, DamagedQueueError: Still not possible.
        """
        async with self._catching_up:
            self._queues.held.settle()
            self._dispatcher.rebuild_damaged(self._begin_of)
            late = set(self._dispatcher.lagging)
            for _ in self._dispatcher.catch_up():
                await asyncio.sleep(0)
            if caught_up := late - self._dispatcher.lagging.keys():
                logger.info("projections have caught up", count=len(caught_up))
                self._tell_caught_up([key for key in caught_up if key != KEY_INDEX])
        for lag in self._dispatcher.lagging.values():
            raise lag.error.with_traceback(None)  # or it gathers them for as long as it lags
        self._dispatcher.bound_backlog()

    def progress(self) -> list[Projection]:
        """Return how far each projection has come."""
        end, indexed_offset = self._dispatcher.queued_offset, self._dispatcher.indexed_offset
        lagging = self._dispatcher.lagging
        queues = [(lag.log_offset, lag.reason) for key, lag in lagging.items() if key != KEY_INDEX]
        if (held := self._queues.held.error) is not None:
            queues.append((end, reason_of(held)))
        queues += [(end, damage) for damage in self._queues.damaged.values()]
        queues += [(end, damage) for damage in self._queues.distrusted.values()]
        index = lagging.get(KEY_INDEX)
        return [
            Projection("consume_queues", *min(queues, default=(end, None))),
            Projection("key_index", indexed_offset, None if index is None else index.reason),
            Projection("state", end),
        ]
