"""Recovery's part for the state: folded from the latest whole snapshot on, or imported.

A store that RocketMQ wrote has no snapshot: its state is imported from ``config/`` and from the
existing queues. If RocketMQ has used the store since Eruca closed it, its topics, groups and
offsets are imported on top, and its changes to transactions and timers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from eruca.contract.names import EVENTS_TOPIC
from eruca_broker.core.consume_queue_entry import Entry
from eruca_broker.core.state.events import (
    EVENTS_QUEUE_ID,
    Event,
    StateSnapshot,
    TopicPut,
    decode_event,
)
from eruca_broker.core.state.state import BrokerState, with_queue
from eruca_broker.core.state.timers import PendingTimers
from eruca_broker.core.state.timers_events import TimerRows
from eruca_broker.store.config import config_snapshots, delay_offsets
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.reading.log_reader import LogReader
from eruca_broker.store.state import imported_timers
from eruca_broker.store.state.imported_transactions import (
    CHECKS_GROUP,
    imported_transactions,
    take_over,
)
from eruca_broker.store.state.snapshot_entries import snapshot_entries
from eruca_broker.store.state.timers_fold import TimersFold

logger = structlog.get_logger(__name__)


class Folded(NamedTuple):
    """The state, and its sources."""

    state: BrokerState
    timers: PendingTimers
    snapshot_offset: int  # log offset of the latest whole snapshot, or the log's beginning
    needs_snapshot: bool  # whether the log needs a newer one
    is_imported: bool = False  # a part of it is in RocketMQ's files, and in no event of the log


def fold(
    directory: Path,
    log: CommitLog,
    queues: ConsumeQueues,
    index: KeyIndex,
    last_store_timestamp: int,
    *,
    may_be_foreign: bool,
    was_rocketmqs: bool,
) -> Folded:
    """Return the state of a store whose log and projections are consistent.

    Args:
        directory: The store's directory.
        log: The log up to its end.
        queues: Contain the places of the events.
        index: The complete index, for reading only.
        last_store_timestamp: Of the log, in ms.
        may_be_foreign: Whether RocketMQ may have used the store since Eruca did.
        was_rocketmqs: Whether it certainly has: the checkpoint is its own.

    Raises:
        RecordNotFoundError: A record of the state is damaged.
        UnreadableConfigError: A file in ``config/`` is damaged, and its content is nowhere else.
    """
    state, timers = BrokerState(), TimersFold()
    queue = queues.existing(EVENTS_TOPIC, EVENTS_QUEUE_ID)
    reader = LogReader(log, index)
    first = _latest_snapshot(queue, reader) if queue is not None else None
    if first is None and log.end_offset > log.min_offset:
        _import(directory, state, queues)
    known_to = 0  # end of the last event's group; an incomplete snapshot is a start's own
    if queue is not None:
        start = queue.min_offset if first is None else first
        for event, entry in _events(queue, reader, start):
            state.apply(event, entry.log_offset)
            timers.apply(event, entry.log_offset)
            if not isinstance(event, StateSnapshot) or event.part == event.parts:
                known_to = entry.log_end + getattr(event, "group_size", 0)
        state.log_epochs.forget_before(log.min_offset)
    if queue is None or first is None:
        rows = imported_timers.imported(
            directory, queues, reader, log.min_offset, last_store_timestamp
        )
        _import_transactions(state, queues, reader)
        is_imported = first is None and log.end_offset > log.min_offset
        return Folded(
            state, _timers(rows), log.min_offset, needs_snapshot=True, is_imported=is_imported
        )
    delivered = delay_offsets.load(directory, only_foreign=True, was_rocketmqs=was_rocketmqs)
    rows = timers.pending(queues, delivered, log.min_offset)
    snapshot_offset = queue.entry(first).log_offset
    is_covered = snapshot_offset >= log.segments[-1].base_offset
    has_changed = _import_changes(directory, state, was_rocketmqs=was_rocketmqs)
    # RocketMQ's checks make progress only while it uses the store.
    progress = state.group_offsets(CHECKS_GROUP) if has_changed else {}
    has_changed |= bool(delivered)
    has_changed |= take_over(state.transactions, queues, reader, progress, known_to)
    if may_be_foreign and imported_timers.has_let_go(log, known_to):
        rows = imported_timers.take_over(rows, queues, reader, last_store_timestamp)
        has_changed = True
    needs_snapshot = has_changed or not is_covered
    return Folded(state, _timers(rows), snapshot_offset, needs_snapshot, is_imported=has_changed)


def _timers(rows: TimerRows) -> PendingTimers:
    pending = PendingTimers()
    pending.add_rows(rows)
    return pending


def _latest_snapshot(queue: ConsumeQueue, reader: LogReader) -> int | None:
    """Return the queue offset of the first part of the latest whole snapshot."""

    def part_at(offset: int) -> StateSnapshot | None:
        event = decode_event(reader.record(queue.entry(offset).log_offset).body)
        return event if isinstance(event, StateSnapshot) else None

    for last in snapshot_entries(queue, queue.max_offset):
        part = part_at(last)
        if part is None or part.part != part.parts:
            continue
        first = last - part.parts + 1  # the parts are written in one group
        begin = part_at(first) if first >= queue.min_offset else None
        if begin is not None and begin.part == 1:
            return first
    return None


def _events(queue: ConsumeQueue, reader: LogReader, first: int) -> Iterator[tuple[Event, Entry]]:
    for offset in range(first, queue.max_offset):
        entry = queue.entry(offset)
        yield decode_event(reader.record(entry.log_offset).body), entry


def _import(directory: Path, state: BrokerState, queues: ConsumeQueues) -> None:
    """Import RocketMQ's state; topics missing in its list are found by their queues."""
    loaded = config_snapshots.load(directory)
    for put in loaded.topics:
        state.apply(put, 0)
    for topic, queue_id in queues:
        if topic not in state.topics:
            state.apply(TopicPut(topic, 1, 1, "rw"), 0)
        state.topics[topic] = with_queue(state.topics[topic], queue_id)
    events: list[Event] = [*loaded.groups, *loaded.offsets]
    for event in events:
        state.apply(event, 0)
    logger.info("state imported", topics=len(loaded.topics), groups=len(state.groups))


def _with_known_order(put: TopicPut, state: BrokerState) -> TopicPut:
    """Return *put* with the known order config: RocketMQ's brokers store none."""
    known = state.topics.get(put.topic)
    if known is None or not put.ordered:
        return put
    return msgspec.structs.replace(put, order_config=known.order_config)


def _import_transactions(state: BrokerState, queues: ConsumeQueues, reader: LogReader) -> None:
    progress = state.group_offsets(CHECKS_GROUP)
    for live in imported_transactions(queues, reader, progress):
        if state.transactions.get(live.transaction_id) is None:
            state.transactions.load(live)


def _import_changes(directory: Path, state: BrokerState, *, was_rocketmqs: bool) -> bool:
    """Import RocketMQ's changes since Eruca closed the store; tell whether there are any."""
    loaded = config_snapshots.load_changes(directory, state.groups, was_rocketmqs=was_rocketmqs)
    topics = [_with_known_order(put, state) for put in loaded.topics]
    events: list[Event] = [*topics, *loaded.groups, *loaded.offsets]
    for event in events:
        state.apply(event, 0)
    if events:
        logger.info(
            "state changed by RocketMQ", topics=len(loaded.topics), groups=len(loaded.groups)
        )
    return bool(events)
