"""Compute the pending timers when a store is opened, from the log like all state.

Pending are the timers of the latest snapshot, and those stored since according to the consume
queues of the delayed topics, minus those that later events have ended. No record is read for it, so
a million timers take a fraction of a second.

A log that RocketMQ wrote has no snapshot. If RocketMQ continued a log of Eruca, no event records
which timers it has ended; :mod:`.imported_timers` finds out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from eruca.contract.names import SCHEDULE_TOPIC
from eruca.core.messages.delay_levels import level_of_queue
from eruca_broker.core.consume_queue_entry import Entries
from eruca_broker.core.records.scheduled import DELAYED_TOPICS
from eruca_broker.core.state.events import Event
from eruca_broker.core.state.snapshots import StateSnapshot
from eruca_broker.core.state.timers import NO_TIMERS
from eruca_broker.core.state.timers_events import TimerRows, TimersCancelled, TimersFired, rows_of
from eruca_broker.store.config.delay_offsets import first_since, steps
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.consume_queues import ConsumeQueues


class TimersFold:
    """Takes the events from the latest snapshot on, in order; then the queues."""

    def __init__(self) -> None:
        self._rows: TimerRows = NO_TIMERS
        self._since = 0  # timers set at this log offset or later are not in _rows
        self._ended: list[int] = []
        self._parts: list[StateSnapshot] = []  # of an incomplete snapshot
        self._begun_at = 0

    def apply(self, event: Event, log_offset: int) -> None:
        """Fold the event recorded at *log_offset*."""
        if isinstance(event, TimersFired | TimersCancelled):
            self._ended += event.timers
        elif isinstance(event, StateSnapshot):
            if event.part == 1:
                self._parts, self._begun_at = [], log_offset
            if event.part == len(self._parts) + 1:
                self._parts.append(event)
                if event.part == event.parts:
                    self._replace()

    def pending(
        self, queues: ConsumeQueues, delivered: Mapping[int, int], min_offset: int
    ) -> TimerRows:
        """Return the timers of a store whose log begins at *min_offset*.

        Timers that RocketMQ has *delivered* in each delay level meanwhile, if it has used the
        store, have ended, too.
        """
        parts, ended_parts = [self._rows], [np.array(self._ended, np.int64)]
        for _, queue in delayed_queues(queues, *DELAYED_TOPICS):
            first = first_since(queue, self._since)
            parts += [rows_of_entries(entries) for entries in steps(queue, first)]
        for queue_id, queue in delayed_queues(queues, SCHEDULE_TOPIC):
            end = delivered.get(level_of_queue(queue_id), 0)
            if queue.min_offset < end:
                entries = queue.entries(queue.min_offset, end - queue.min_offset)
                ended_parts.append(entries["log_offset"].astype(np.int64))
        rows, ended = np.concatenate(parts), np.concatenate(ended_parts)
        return rows[(rows[:, 1] >= min_offset) & ~np.isin(rows[:, 1], ended)]

    def before(self, log_offset: int) -> list[int]:
        """Return the log offsets of pending timers' messages before *log_offset*.

        They are those of the latest snapshot that no later event has ended.
        """
        offsets = self._rows[:, 1]
        is_ended = np.isin(offsets, np.array(self._ended, np.int64))
        found: list[int] = offsets[(offsets < log_offset) & ~is_ended].tolist()
        return found

    def at_snapshot(self, rows: TimerRows, min_offset: int) -> TimerRows:
        """Return the latest snapshot's timers, and those of *rows* that were set since."""
        rows = np.concatenate([self._rows, rows[rows[:, 1] >= self._since]])
        return rows[rows[:, 1] >= min_offset]

    def _replace(self) -> None:
        pieces = [piece for part in self._parts for piece in part.timers]
        self._rows = np.concatenate([NO_TIMERS, *map(rows_of, pieces)])
        self._since = pieces[0].since if pieces else self._begun_at
        self._ended = []


def delayed_queues(queues: ConsumeQueues, *topics: str) -> Iterator[tuple[int, ConsumeQueue]]:
    """Yield the queues of some of the delayed topics, with their ids."""
    for topic, queue_id in queues:
        if topic in topics:
            yield queue_id, queues.queue(topic, queue_id)


def rows_of_entries(entries: Entries) -> TimerRows:
    """Return the timers of delayed messages."""
    return np.stack([entries["tags_code"], entries["log_offset"]], axis=1).astype(np.int64)
