"""Retention in the store: find the part of the log that is still needed; delete oldest segments.

Pointers to a segment's records are deleted before the segment: entries of consume queues, then of
the key index. So no failure on the way leaves a pointer to a deleted record. No segment is deleted
before an older one, and the last one never is.

:mod:`eruca_broker.core.log.retention` decides how many to delete.
"""

from __future__ import annotations

from collections.abc import Iterator

from eruca.contract.errors import UnavailableError
from eruca.contract.names import dead_letter_topic
from eruca_broker.core.log.retention import oldest_needed
from eruca_broker.store.pulling.queue_reader import QueueReader
from eruca_broker.store.recovery.recovery import Recovered
from eruca_broker.store.state.state_snapshots import StateSnapshots
from eruca_broker.store.writing.writer import Writer
from eruca_chassis.finishing import finished_in_thread


class Retention:
    """The oldest segments of one store, and the reasons to keep them.

    Args:
        parts: The store's parts.
        queues: Know their beginnings.
        snapshots: Know where the latest snapshot begins.
        writer: Flushes the log.
    """

    def __init__(
        self,
        parts: Recovered,
        queues: QueueReader,
        snapshots: StateSnapshots,
        writer: Writer,
    ) -> None:
        self._log = parts.log
        self._consume_queues = parts.queues
        self._index = parts.index
        self._dispatcher = parts.dispatcher
        self._state = parts.state
        self._timers = parts.timers
        self._snapshots = snapshots
        self._writer = writer
        self._queues = queues

    def written_at(self) -> list[float]:
        """Return when each segment was last written, oldest first, in seconds since the epoch."""
        return [segment.modified_at() for segment in self._log.segments]

    def segment_ends(self) -> list[int]:
        """Return the log offset after each segment, oldest first."""
        return [segment.end_offset for segment in self._log.segments]

    async def needed_from(self) -> int:
        """Return the log offset before which nothing is needed, even after a crash now.

        A newer record that supersedes others counts only once it is durable. Otherwise retention
        could delete the others, and a power failure the newer one.

        Raises:
            StoreFailedError: The disk failed to flush the log; final.
        """
        needed = oldest_needed(
            visible_offset=self._dispatcher.lacking_from,
            snapshot_offset=self._snapshots.latest_offset,
            waiting=(self._timers.oldest_id(), self._state.transactions.oldest_offset()),
        )
        await self._writer.flush()
        return min(needed, self._writer.flushed_offset)

    def deletion(self, count: int, needed_from: int) -> Iterator[int | None]:
        """Delete up to *count* segments in steps, since thousands of queues take time.

        Yield the log's new beginning after each segment, and None after each queue. The store is
        consistent between two steps, so the caller may stop at any of them.

        Args:
            count: The maximum number of segments.
            needed_from: The result of :meth:`needed_from`: data after it stays.

        Raises:
            OSError: A segment could not be deleted; it and the later ones stay.
        """
        dispatcher = self._dispatcher
        for _ in range(count):
            segment = self._log.expired(min(needed_from, dispatcher.lacking_from))
            if segment is None:
                return
            rebuilt_count = dispatcher.rebuilt_count
            for _ in self._consume_queues.delete_expired(segment.end_offset):
                yield None
            # A queue that was found damaged meanwhile is rebuilt with entries of this segment.
            if dispatcher.rebuilt_count > rebuilt_count:
                return
            if segment.end_offset > dispatcher.lacking_from:
                return
            self._index.delete_expired(segment.end_offset)
            self._log.delete_oldest()
            self._state.redriven.forget_before(self._first_dead_letter)
            self._state.log_epochs.forget_before(self._log.min_offset)
            yield self._log.min_offset

    def _first_dead_letter(self, group: str) -> int:
        try:
            return self._queues.range(dead_letter_topic(group), 0)[0]
        except UnavailableError:  # the tier may have earlier ones: nothing of them is forgotten
            return 0

    async def let_deleted_go(self) -> None:
        """Free the memory of deleted segments; await it before deleting another one.

        Raises:
            OSError: The deletion is not durable.
        """
        await finished_in_thread(self._log.let_deleted_go)
