"""Retention in the store: what of the log is still needed, and how the oldest segments go.

What leads to a segment's records goes before it does: entries of consume queues, then of the key
index. So whatever fails on the way, nothing leads to a record that is gone. No segment goes before
an older one, and the last one never.

How many are to go is decided elsewhere (:mod:`eruca_broker.core.log.retention`).
"""

from __future__ import annotations

from collections.abc import Iterator

from eruca.contract.names import dead_letter_topic
from eruca_broker.core.log.retention import oldest_needed
from eruca_broker.store.queue_reader import QueueReader
from eruca_broker.store.recovery.recovery import Recovered
from eruca_broker.store.state.state_snapshots import StateSnapshots
from eruca_broker.store.writer import Writer
from eruca_chassis.finishing import finished_in_thread


class Retention:
    """The oldest segments of one store, and what keeps them.

    Args:
        parts: The store's.
        queues: Tell where they begin.
        snapshots: Know where the latest one begins.
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
        """Return the log offset behind each segment, oldest first."""
        return [segment.end_offset for segment in self._log.segments]

    async def needed_from(self) -> int:
        """Return the log offset before which nothing is needed any more, whatever happens now.

        What a newer record has made superfluous counts only once that record is durable: a power
        cut must not take the one after retention took the other.

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
        """Delete up to *count* segments, step by step, for thousands of queues take their time.

        Yields the log's new start after each segment, and None after each queue: whatever happens
        between two steps, and if there is no further one, what is in order stays so.

        Args:
            count: How many at most.
            needed_from: What :meth:`needed_from` has returned: what reaches beyond it stays.

        Raises:
            OSError: A segment is still there, and so are those behind it.
        """
        for _ in range(count):
            segment = self._log.expired(needed_from)
            if segment is None:
                return
            for _ in self._consume_queues.delete_expired(segment.end_offset):
                yield None
            self._index.delete_expired(segment.end_offset)
            self._log.delete_oldest()
            self._state.redriven.forget_before(
                lambda group: self._queues.range(dead_letter_topic(group), 0)[0]
            )
            yield self._log.min_offset

    async def let_deleted_go(self) -> None:
        """Free what deleted segments took; to be awaited before a further one is deleted.

        Raises:
            OSError: That they are deleted is not durable.
        """
        await finished_in_thread(self._log.let_deleted_go)
