"""Fold published events into the state of an open store, and set timers.

Recovery folds the events of the log itself (:mod:`eruca_broker.store.state.state_fold`); this
continues with those that are published later, a master's at a replica included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eruca.contract.errors import RecordNotFoundError
from eruca_broker.core.records.scheduled import delivery_time
from eruca_broker.core.state.events import Event, StateSnapshot, TopicDeleted
from eruca_broker.core.state.state import BrokerState
from eruca_broker.core.state.timers import PendingTimers, Timer
from eruca_broker.core.state.timers_events import TimersCancelled, TimersFired
from eruca_broker.store.config.handover import Handover
from eruca_broker.store.projecting.dispatcher import Dispatcher
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.reading.log_reader import LogReader
from eruca_broker.store.state.state_snapshots import StateSnapshots
from eruca_broker.store.state.timers_fold import TimersFold


class PublishedFold:
    """Folds the published events of one store.

    Args:
        state: The state.
        timers: … the pending timers.
        snapshots: Learn of each published snapshot.
        handover: Learns of each ended timer.
        dispatcher: Has dispatched the records before an event, and collects their timers.
        queues: Those of a deleted topic are deleted.
        reader: Reads the messages of timers that another master has ended.
        is_replica: Whether the log may get its first snapshot from a master.
        timers_set: Called when timers have been set.
    """

    def __init__(
        self,
        *,
        state: BrokerState,
        timers: PendingTimers,
        snapshots: StateSnapshots,
        handover: Handover,
        dispatcher: Dispatcher,
        queues: ConsumeQueues,
        reader: LogReader,
        is_replica: bool,
        timers_set: Callable[[], None],
    ) -> None:
        self._state = state
        self._timers = timers
        self._snapshots = snapshots
        self._handover = handover
        self._dispatcher = dispatcher
        self._queues = queues
        self._reader = reader
        self._is_replica = is_replica
        self._timers_set = timers_set
        # The part of the log before its first snapshot is RocketMQ's, if there is any.
        self._first_snapshot = None if state.log_id else TimersFold()

    def fold(self, events: Sequence[tuple[Event, int]]) -> None:
        """Fold published events; the records before the last of them are dispatched."""
        self._set_timers()  # first, since an event may end one of them
        for event, log_offset in events:
            self._state.apply(event, log_offset)
            if isinstance(event, TopicDeleted):
                self._dispatcher.forget_topic(event.topic)
                self._queues.delete_topic(event.topic)
            elif isinstance(event, StateSnapshot):
                self._snapshots.note(event, log_offset)
                self._take_over_from(event, log_offset)
            elif isinstance(event, TimersFired | TimersCancelled):
                # Nothing on this store has taken a timer that another master has ended.
                if alien := [it for it in event.timers if not self._timers.is_held(it)]:
                    self._hold(alien)
                self._timers.finish(event.timers)
                self._handover.note_end()

    def _take_over_from(self, part: StateSnapshot, log_offset: int) -> None:
        """Take over from RocketMQ, at the first snapshot of a log that it began.

        Its records do not say which delayed messages it has delivered; the snapshot does.
        """
        if part.part == part.parts and self._is_replica:
            self._snapshots.is_due = False
        if self._first_snapshot is None:
            return
        self._first_snapshot.apply(part, log_offset)
        if part.part == part.parts and self._state.log_id:
            before = self._timers.rows()
            rows = self._first_snapshot.at_snapshot(before, self._reader.min_offset)
            ended = self._timers.take(Timer(*row) for row in before.tolist())
            self._timers.finish(timer.id for timer in ended)
            self._timers.add_rows(rows)
            self._handover.note_end()  # RocketMQ has ended timers
            self._first_snapshot = None

    def _hold(self, timer_ids: Sequence[int]) -> None:
        """Hold pending timers that another master has ended."""
        timers, unread = [], []
        for timer_id in timer_ids:
            try:
                record = self._reader.record(timer_id)
                properties = record.properties.encode()
                due = delivery_time(record.topic, properties, record.store_timestamp)
            except RecordNotFoundError:
                due = None
            if due is None:
                unread.append(timer_id)
            else:
                timers.append(Timer(due, timer_id))
        if unread:  # their records are damaged: search all timers, which is slow
            rows = self._timers.rows()
            timers += [Timer(*row) for row in rows[np.isin(rows[:, 1], unread)].tolist()]
        self._timers.take(timers)

    def _set_timers(self) -> None:
        waiting = self._dispatcher.take_waiting()
        if waiting is not None:
            rows = np.stack((waiting["tags_code"], waiting["log_offset"]), axis=1)
            self._timers.add_rows(rows.astype(np.int64))
            self._timers_set()
