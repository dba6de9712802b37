"""State snapshots: each segment of the log begins with one, so that older segments can be deleted.

A snapshot holds the state after everything that precedes it in the log, so accepted but unpublished
events count, too. It is a group of control records; only the last of them makes it whole
(:mod:`eruca_broker.core.state.snapshots`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from eruca.contract.records import BLANK_SIZE_MIN
from eruca_broker.core.batches.batch import Batch
from eruca_broker.core.records.scheduled import DELAYED_TOPICS
from eruca_broker.core.state.events import Event, StateSnapshot
from eruca_broker.core.state.snapshots import SnapshotItem
from eruca_broker.core.state.state import SNAPSHOT_ITEMS_MAX, BrokerState
from eruca_broker.core.state.timers import PendingTimers
from eruca_broker.core.state.timers_events import TimersCancelled, TimersFired, timer_pieces
from eruca_broker.store.projecting.dispatcher import timed_entries
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.queue_files import DamagedQueueError
from eruca_broker.store.state.timers_fold import rows_of_entries
from eruca_broker.store.writing.writer import Writer

_ITEM_SIZE: Final = 1_024  # bytes of JSON, an estimate; hardly any item takes a third of it


class StateSnapshots:
    """Builds snapshots, and knows the place of the latest whole one in the log.

    Args:
        state: The state.
        timers: … the pending timers.
        queues: … and the ends of the queues.
        latest_offset: Log offset of the latest whole snapshot.
        new_log_id: The log's id from its first snapshot on; ignored if it has one.
        is_due: Whether the log lacks a part of the state, so that it needs a snapshot now.
    """

    def __init__(
        self,
        state: BrokerState,
        timers: PendingTimers,
        queues: ConsumeQueues,
        latest_offset: int,
        *,
        new_log_id: str,
        is_due: bool,
    ) -> None:
        self.is_due = is_due
        self.latest_offset = latest_offset
        self._state = state
        self._timers = timers
        self._queues = queues
        self._new_log_id = new_log_id
        self._begun_at = latest_offset  # of the snapshot that is not completely published yet

    def batches(
        self,
        writer: Writer,
        *,
        segment_bytes: int,
        batch_of: Callable[[StateSnapshot], Batch],
    ) -> list[tuple[Batch, Event]]:
        """Return the state after everything that *writer* has accepted, in parts.

        A part's size is only estimated beforehand. If one does not fit into a segment, all parts
        are made smaller. A single item that is too large stays so.

        Args:
            writer: Knows what is not published yet.
            segment_bytes: Bytes; a part should take no more than about half of them.
            batch_of: Builds a part's control record.
        """
        state = self._state
        coming = list(writer.unpublished_events())
        if coming:
            state = state.copy()
            for event, log_offset in coming:
                state.apply(event, log_offset)
        items_max = min(SNAPSHOT_ITEMS_MAX, max(segment_bytes // 2 // _ITEM_SIZE, 1))
        ends = list(self._queue_ends(state, writer))
        has_timers = any(topic in DELAYED_TOPICS for topic, _, _ in ends)
        while True:
            timers = self._timer_items(coming, writer, items_max) if has_timers else ()
            parts = state.snapshot(
                ends, items_max=items_max, more=timers, new_log_id=self._new_log_id
            )
            batches: list[tuple[Batch, Event]] = [(batch_of(part), part) for part in parts]
            if items_max == 1 or all(b.size + BLANK_SIZE_MIN <= segment_bytes for b, _ in batches):
                return batches
            items_max //= 2

    def note(self, part: StateSnapshot, log_offset: int) -> None:
        """Record that a part is published."""
        if part.part == 1:
            self._begun_at = log_offset
        if part.part == part.parts:
            self.latest_offset = self._begun_at

    def latest_with(self, coming: Iterable[tuple[Event, int]]) -> int:
        """Return the log offset of the latest whole snapshot once *coming* events are published."""
        begun_at, latest = self._begun_at, self.latest_offset
        for event, log_offset in coming:
            if isinstance(event, StateSnapshot):
                begun_at = log_offset if event.part == 1 else begun_at
                latest = begun_at if event.part == event.parts else latest
        return latest

    def _queue_ends(self, state: BrokerState, writer: Writer) -> Iterator[tuple[str, int, int]]:
        ends = dict(state.queue_ends)
        for topic, queue_id in self._queues:
            if writer.is_leaving(topic):
                continue  # they are queues of the deleted topic, not of its successor
            # An unreadable queue must not stop the log: its end is then known from its messages, or
            # without any from the state.
            with suppress(OSError, DamagedQueueError):
                end = self._queues.end_of(topic, queue_id)
                ends[topic, queue_id] = max(end, ends.get((topic, queue_id), 0))
        ends.update(writer.known_next_offsets())
        for (topic, queue_id), offset in ends.items():
            if offset:
                yield topic, queue_id, offset

    def _timer_items(
        self, coming: Sequence[tuple[Event, int]], writer: Writer, items_max: int
    ) -> Iterator[SnapshotItem]:
        """Yield the pending timers, of messages that are not visible yet too."""
        parts = [self._timers.rows()]
        for appended in writer.unpublished():
            if appended.batch.topic in DELAYED_TOPICS:
                parts.append(rows_of_entries(timed_entries(appended)))
        rows = np.concatenate(parts)
        ended = [
            timer
            for event, _ in coming
            if isinstance(event, TimersFired | TimersCancelled)
            for timer in event.timers
        ]
        if ended:
            rows = rows[~np.isin(rows[:, 1], ended)]
        for piece, weight in timer_pieces(rows, writer.end_offset, items_max):
            yield SnapshotItem("timers", piece, weight)
