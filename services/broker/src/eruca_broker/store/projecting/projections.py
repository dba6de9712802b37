"""Feed the projections, and handle failures to write them.

A projection that fails lags: the log continues, requests that need the projection get an error, and
the missing records are added later (:mod:`eruca_broker.store.queues.lagging`). Writes are refused
only if room, open files or memory are short: the log will soon lack them, too, and they become
available again without repair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from eruca.contract.errors import UnavailableError
from eruca_broker.store.files.refusals import is_scarcity, refusal_of
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.projecting.checkpoints import unflushed_reason
from eruca_broker.store.projecting.dispatcher import Dispatcher
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.lagging import KEY_INDEX, Key, reason_of
from eruca_chassis.files.flushing import FlushError

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Projection:
    """The progress of a projection."""

    name: str
    log_offset: int  # it contains everything before
    failure: str | None = None  # why it lacks what follows; or its damage

    def or_failure(self, error: FlushError | None) -> Projection:
        """Return it with the failed flush as its failure, unless it has another."""
        if error is None or self.failure is not None:
            return self
        return replace(self, failure=unflushed_reason(error))


class Projections:
    """The consume queues and the key index of one store, as they follow the log.

    Args:
        dispatcher: Writes them.
        queues: Knows the damaged ones.
        caught_up: Called with the queues that no longer lag.
        begin_of: Returns the log offset from which a topic's records count.
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

        They are in the log, flushed and acknowledged, even if this fails; only readers wait.

        Returns:
            Why writes must stop now; None if no resource is short.
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
        """Retry those that a full or failing disk has stopped.

        Raises:
            OSError, DamagedQueueError: They still fail.
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
            raise lag.error.with_traceback(None)  # else the traceback grows with each retry
        self._dispatcher.bound_backlog()

    def progress(self) -> list[Projection]:
        """Return the progress of each projection."""
        end, indexed_offset = self._dispatcher.queued_offset, self._dispatcher.indexed_offset
        assert indexed_offset <= end, "the key index leads the queues"
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
