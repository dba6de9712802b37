"""Opening a store: where the log ends, which projections can be believed, what the state is.

Steps, in order::

    1. the log's files        must form a log, or nothing is touched
    2. the projections        after an orderly stop compared with their digests, after a crash cut
                              back to where they were durable; what is damaged is deleted
    3. the walk               from the oldest offset some projection lacks, and after a crash at
                              least through the last segment that was flushed: every record is
                              proved and dispatched; known entries change nothing
    4. the end                a torn tail is cut, and with it the group of records it is part of;
                              damage below what was flushed is refused; what is left is flushed
    5. the state              folded from the latest whole snapshot on; and which timers are
                              pending, from there and the queues where messages wait

After an orderly stop hardly a record is walked, so it may be the fold that finds one damaged. Then
all begins anew as after a crash, and the walk comes to it.

The last segment must begin with a snapshot, or what retention leaves could lack one: where a crash
came before it was whole, ``needs_snapshot`` asks for another.

A store that RocketMQ wrote has no snapshot: its state is taken from ``config/`` and from the
queues that are there, and ``needs_snapshot`` asks for one. So it does where RocketMQ has had the
store since, for the topics and offsets it has noted in ``config/``.

Source: RocketMQ 5.3, ``DefaultMessageStore.load``, ``CommitLog.recoverAbnormally``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import structlog

from eruca.contract.errors import RecordNotFoundError
from eruca.contract.hashing import tags_code
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import DamagedRecordError, decode_record
from eruca_broker.core.events import (
    EVENTS_QUEUE_ID,
    SNAPSHOT_TAG,
    Event,
    StateSnapshot,
    TopicPut,
    decode_event,
)
from eruca_broker.core.record_groups import GROUP_HEADS
from eruca_broker.core.recovery import walk
from eruca_broker.core.state import BrokerState, with_queue
from eruca_broker.core.timers import PendingTimers
from eruca_broker.store import config_snapshots, delay_offsets
from eruca_broker.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from eruca_broker.store.commit_log import CommitLog, CorruptLogError
from eruca_broker.store.consume_queue import ConsumeQueue
from eruca_broker.store.consume_queues import ConsumeQueues, DamagedQueue
from eruca_broker.store.dispatcher import Dispatcher, keyed_offsets
from eruca_broker.store.imported_transactions import CHECKS_GROUP, imported_transactions
from eruca_broker.store.key_index import KeyIndex
from eruca_broker.store.projection_digests import Digests, take_digests
from eruca_broker.store.queue_files import DamagedQueueError
from eruca_broker.store.reader import Reader
from eruca_broker.store.settings import StoreSettings
from eruca_broker.store.timers_fold import TimersFold, imported

_GROUP_CODES: Final = {tags_code(str(head.__struct_config__.tag)) for head in GROUP_HEADS}

logger = structlog.get_logger(__name__)


class _Walked(NamedTuple):
    """What a walk has found."""

    end: int  # log offset behind the last sound record
    timestamp: int  # its store time in ms; 0 where there was none
    is_full: bool  # whether the last segment is


class _Folded(NamedTuple):
    """The state, and what it was folded from."""

    state: BrokerState
    timers: PendingTimers
    snapshot_offset: int  # log offset of the latest whole snapshot, or where the log begins
    needs_snapshot: bool  # whether the log should hold a newer one


@dataclass(slots=True)
class Recovered:
    """The parts of an open store."""

    log: CommitLog
    queues: ConsumeQueues
    index: KeyIndex
    dispatcher: Dispatcher
    state: BrokerState
    timers: PendingTimers
    last_store_timestamp: int
    snapshot_offset: int  # where the latest whole snapshot begins
    needs_snapshot: bool


def recover(directory: Path, settings: StoreSettings, *, stopped_cleanly: bool) -> Recovered:
    """Open the store in *directory*.

    Raises:
        CorruptLogError: Durable records are damaged; the log has not been changed.
        UnreadableConfigError: A store of RocketMQ's has a ``config/`` that cannot be understood.
        OSError: The disk refuses.
    """
    try:
        with ExitStack() as opened:
            recovered = _recover(directory, settings, opened, stopped_cleanly=stopped_cleanly)
            opened.pop_all()
            return recovered
    except (RecordNotFoundError, DamagedRecordError) as error:
        if not stopped_cleanly:
            raise CorruptLogError(
                f"the log in {directory} is damaged where it tells the broker's state: {error}. "
                "Restore the file from a replica or a backup"
            ) from error
        logger.warning("the state cannot be read; the log's end is proved", fault=str(error))
    return recover(directory, settings, stopped_cleanly=False)


def _recover(
    directory: Path, settings: StoreSettings, opened: ExitStack, *, stopped_cleanly: bool
) -> Recovered:
    """Open the store as :func:`recover` does; what is open is closed by *opened*.

    Raises:
        RecordNotFoundError: A record of the state is damaged.
        DamagedRecordError: The last one is.
    """
    log = CommitLog.open(
        directory / "commitlog", settings.segment_size, stopped_cleanly=stopped_cleanly
    )
    opened.callback(log.close)
    log.is_warming = settings.is_log_warmed
    checkpoint = read_checkpoint(directory)
    promises = checkpoint or Checkpoint(0, 0, 0, 0)
    flushed = promises.flushed_offset
    # What is rebuilt now is not yet what RocketMQ may believe, should it take over after a kill.
    write_checkpoint(directory, promises._replace(index_timestamp=0))
    is_orderly = stopped_cleanly and checkpoint is not None and flushed <= log.allocated_offset
    digests = take_digests(directory)
    queues, index, start = _open_projections(
        directory, settings, log, promises, digests if is_orderly else None
    )
    opened.callback(queues.close)
    opened.callback(index.close)
    dispatcher = Dispatcher(log, queues, index)
    walker = _Walker(log, queues, dispatcher, flushed if checkpoint else log.allocated_offset)
    try:
        walked = walker.walk(start)
    except DamagedQueueError as error:
        logger.warning("consume queues do not fit the log and are rebuilt", reason=str(error))
        _retract(directory, promises)
        walked = walker.rebuild()
    end = walked.end
    if end < flushed and not settings.is_damage_cut:
        raise CorruptLogError(
            f"the log in {directory} is sound up to {end} but was durable up to {flushed}: "
            f"{flushed - end} bytes of acknowledged messages are damaged. Restore the file from a "
            "replica or a backup; to give those messages up, start once with "
            "ERUCA_BROKER_CUT_DAMAGE=true"
        )
    if end < flushed:
        delay_offsets.forget(directory)
    queues.truncate(end)
    if (torn := _torn_group(log, queues, end)) is not None:
        logger.warning("the log ends in a torn group of records", log_offset=torn)
        end = torn
        queues.truncate(end)
    is_full = walked.is_full and torn is None
    log.set_end(end, is_full=is_full, is_tail_clean=is_orderly and end == flushed)
    if flushed < end:  # written by a process that may not have flushed it: now it is durable, too
        for segment in log.segments_between(flushed, end):
            segment.flush()
    index.truncate(end)
    for _ in queues.delete_expired(log.min_offset):
        pass
    index.delete_expired(log.min_offset)
    last_store_timestamp = max(walked.timestamp, promises.log_timestamp)
    folded = _fold(directory, log, queues, index, last_store_timestamp)
    ends = folded.state.queue_ends.items()
    if not is_orderly and any(_lacks(queues, *place) for place in ends):
        # Files of queues are gone, and nothing but the state still knew that there were some.
        logger.warning("consume queues are missing and are rebuilt from the log")
        _retract(directory, promises)
        walker.rebuild()
        folded = _fold(directory, log, queues, index, last_store_timestamp)
        for place, queue_end in folded.state.queue_ends.items():
            if _lacks(queues, place, queue_end):  # all it had has expired
                queues.queue(*place).begin(queue_end)  # or every start would look for it again
    dispatcher.queued_offset = dispatcher.indexed_offset = end
    logger.info(
        "store opened",
        directory=str(directory),
        stopped_cleanly=stopped_cleanly,
        log_start=log.min_offset,
        log_end=end,
        walked_from=start,
        topics=len(folded.state.topics),
        timers=len(folded.timers),
    )
    return Recovered(
        log,
        queues,
        index,
        dispatcher,
        folded.state,
        folded.timers,
        last_store_timestamp,
        folded.snapshot_offset,
        folded.needs_snapshot,
    )


def _open_projections(
    directory: Path,
    settings: StoreSettings,
    log: CommitLog,
    promises: Checkpoint,
    digests: Digests | None,
) -> tuple[ConsumeQueues, KeyIndex, int]:
    """Open queues and index, without what cannot be believed; tell where the walk must start.

    Args:
        directory: The store's.
        settings: Their sizes.
        log: The log, whose end is not known yet.
        promises: What the last checkpoint says.
        digests: Of the files after an orderly stop; None after any other.
    """
    queues = ConsumeQueues(
        directory / "consumequeue",
        entries_per_file=settings.queue_file_entries,
        open_files_max=settings.open_files_max,
    )
    if digests is None:
        start = trusted = _trusted_offset(log, promises)
        damaged = _check_after_crash(queues, trusted, log.min_offset)
        index = _open_index(directory, settings, limit=trusted)
        if (lacking := _first_unindexed(log, index)) is not None:
            logger.warning("key index lacks a file and is rebuilt from there", log_offset=lacking)
            index.truncate(lacking)
        start = min(start, log.segment_start(index.end_offset))
    else:
        start = trusted = promises.flushed_offset
        damaged = queues.verify(digests.queues, log_end=trusted)
        index = _open_index(directory, settings, digests=digests.index)
    if damaged or not len(queues):
        start = log.min_offset
    elif index.resume_offset is not None:
        start = min(start, log.segment_start(index.resume_offset))
    if start < trusted:
        _retract(directory, promises)
    for queue in damaged:
        logger.warning("consume queue is rebuilt from the log", **queue._asdict())
        queues.delete(queue.topic, queue.queue_id)
    return queues, index, start


def _retract(directory: Path, promises: Checkpoint) -> None:
    """Promise nothing of the projections: a kill amid a rebuild must lead to a whole one."""
    write_checkpoint(directory, Checkpoint(0, 0, 0, promises.flushed_offset))


def _open_index(
    directory: Path,
    settings: StoreSettings,
    *,
    limit: int | None = None,
    digests: Mapping[str, int] | None = None,
) -> KeyIndex:
    index = KeyIndex.open(
        directory / "index",
        hash_slots=settings.index_slots,
        max_entries=settings.index_entries,
        limit=limit,
        digests=digests,
    )
    for file in index.damaged:
        logger.warning("key index file is rebuilt from the log", **file._asdict())
    return index


def _trusted_offset(log: CommitLog, promises: Checkpoint) -> int:
    """Return the start of the segment up to whose records all projections were durable.

    A checkpoint tells of what was flushed of the log when the projections had been flushed, too;
    but it may have been retracted, and then has no time for them.
    """
    if not promises.queues_timestamp:
        return log.min_offset
    return log.segment_start(promises.flushed_offset - 1)


def _check_after_crash(
    queues: ConsumeQueues, limit: int, min_log_offset: int
) -> list[DamagedQueue]:
    """Cut every queue back to what was durable; return those whose rest makes no sense."""
    damaged = {(queue.topic, queue.queue_id): queue for queue in queues.recover_all(limit)}
    for queue in queues.verify(None, log_end=limit):
        damaged.setdefault((queue.topic, queue.queue_id), queue)
    for key in queues:
        if key not in damaged and _may_lack_its_begin(queues.queue(*key), min_log_offset):
            damaged[key] = DamagedQueue(*key, "its first entries are missing")
    return list(damaged.values())


def _may_lack_its_begin(queue: ConsumeQueue, min_log_offset: int) -> bool:
    """Tell whether a file with live entries may be missing in front.

    Retention deletes a file when all its entries have expired, and with it hardly ever all that
    expire: the next file begins with expired ones.
    """
    first = queue.files.first * queue.files.entries_per_file
    if not 0 < first < queue.max_offset:
        return False
    entry = queue.entry(first)
    return not entry.is_filler and entry.log_offset >= min_log_offset


def _first_unindexed(log: CommitLog, index: KeyIndex) -> int | None:
    """Return the first record whose keys should be in front of an index file, and are not.

    Nothing but records without keys lies between the last record of a file and the first of the
    next, so this looks at very few of them, unless a file is missing.
    """
    behind = -1  # log offset of the last record in the files so far
    for begin, end in index.extents():
        first = max(behind, log.min_offset)
        for segment in log.segments_between(first, begin):
            base = segment.base_offset
            before = memoryview(segment.buffer)[: begin - base]
            for step in walk(before, max(first - base, 0), base):
                keyed = keyed_offsets(step.columns, base) if step.columns is not None else []
                if lacking := [offset for offset in keyed if offset > behind]:
                    return lacking[0]
        behind = end
    return None


@dataclass(frozen=True, slots=True)
class _Walker:
    """Proves the records of the log and dispatches them."""

    log: CommitLog
    queues: ConsumeQueues
    dispatcher: Dispatcher
    durable_offset: int  # behind it a record may be torn

    def walk(self, start: int) -> _Walked:
        """Go from log offset *start*, where a record begins, to the end of the log.

        Raises:
            DamagedQueueError: A queue's entries and the records do not follow one another.
        """
        end, timestamp, is_full = start, 0, False
        for segment in self.log.segments:
            base = segment.base_offset
            if segment.end_offset <= start:
                continue
            assert end >= base or start > base
            steps = walk(
                segment.buffer, max(start - base, 0), base, durable_offset=self.durable_offset
            )
            for step in steps:
                if step.columns is not None:
                    self.dispatcher.rebuild(step.columns, step.topics, base)
                    timestamp = max(timestamp, int(step.columns.store_timestamps.max()))
                end, is_full = base + step.end, step.is_full
                if step.fault:
                    logger.warning(
                        "the log ends in a torn record", log_offset=end, fault=step.fault
                    )
            if not is_full:
                break
            end = segment.end_offset
        return _Walked(end, timestamp, is_full)

    def rebuild(self) -> _Walked:
        """Make all consume queues anew, from the log alone.

        Raises:
            CorruptLogError: Its records contradict each other.
        """
        for key in self.queues:
            self.queues.delete(*key)
        try:
            return self.walk(self.log.min_offset)
        except DamagedQueueError as error:
            raise CorruptLogError(f"records of the log contradict each other: {error}") from error


def _lacks(queues: ConsumeQueues, key: tuple[str, int], end: int) -> bool:
    """Tell whether a queue has fewer entries than the state says."""
    queue = queues.existing(*key)
    return queue is None or queue.max_offset < end


def _torn_group(log: CommitLog, queues: ConsumeQueues, end: int) -> int | None:
    """Return where a group of records begins of which the log's end has cut something off.

    Behind a torn group there is nothing, so its head is the last event of all.
    """
    queue = queues.existing(EVENTS_TOPIC, EVENTS_QUEUE_ID)
    if queue is None or queue.min_offset == queue.max_offset:
        return None
    last = queue.entry(queue.max_offset - 1)
    if last.tags_code not in _GROUP_CODES:
        return None
    [segment] = log.segments_between(last.log_offset, last.log_end)
    record = decode_record(memoryview(segment.buffer), last.log_offset - segment.base_offset)
    head = decode_event(record.body)
    assert isinstance(head, GROUP_HEADS)
    return last.log_offset if last.log_end + head.group_size > end else None


def _fold(
    directory: Path,
    log: CommitLog,
    queues: ConsumeQueues,
    index: KeyIndex,
    last_store_timestamp: int,
) -> _Folded:
    state, timers = BrokerState(), TimersFold()
    queue = queues.existing(EVENTS_TOPIC, EVENTS_QUEUE_ID)
    reader = Reader(log, queues, index)
    first = _latest_snapshot(queue, reader) if queue is not None else None
    if first is None and log.end_offset > log.min_offset:
        _import(directory, state, queues)
    if queue is not None:
        start = queue.min_offset if first is None else first
        for event, log_offset in _events(queue, reader, start):
            state.apply(event, log_offset)
            timers.apply(event, log_offset)
    if queue is None or first is None:
        pending = imported(directory, queues, reader, log.min_offset, last_store_timestamp)
        progress = state.group_offsets(CHECKS_GROUP)
        for live in imported_transactions(queues, reader, progress, log.min_offset):
            if state.transactions.get(live.transaction_id) is None:
                state.transactions.load(live)
        return _Folded(state, pending, log.min_offset, needs_snapshot=True)
    pending = timers.pending(directory, queues, log.min_offset)
    snapshot_offset = queue.entry(first).log_offset
    is_covered = snapshot_offset >= log.segments[-1].base_offset
    has_changed = _import_changes(directory, state)
    return _Folded(state, pending, snapshot_offset, needs_snapshot=has_changed or not is_covered)


def _latest_snapshot(queue: ConsumeQueue, reader: Reader) -> int | None:
    """Return the queue offset of the first part of the latest whole snapshot."""

    def part_at(offset: int) -> StateSnapshot | None:
        event = decode_event(reader.record(queue.entry(offset).log_offset).body)
        return event if isinstance(event, StateSnapshot) else None

    code = tags_code(SNAPSHOT_TAG)
    step = 4_096
    for highest in range(queue.max_offset - 1, queue.min_offset - 1, -step):
        lowest = max(highest - step + 1, queue.min_offset)
        codes = queue.entries(lowest, highest - lowest + 1)["tags_code"]
        for row in np.flatnonzero(codes == code)[::-1].tolist():
            last: int = lowest + row
            part = part_at(last)
            if part is None or part.part != part.parts:
                continue
            first = last - part.parts + 1  # they are written in one go
            begin = part_at(first) if first >= queue.min_offset else None
            if begin is not None and begin.part == 1:
                return first
    return None


def _events(queue: ConsumeQueue, reader: Reader, first: int) -> Iterator[tuple[Event, int]]:
    for offset in range(first, queue.max_offset):
        log_offset = queue.entry(offset).log_offset
        yield decode_event(reader.record(log_offset).body), log_offset


def _import(directory: Path, state: BrokerState, queues: ConsumeQueues) -> None:
    """Take over what RocketMQ knew; topics it did not list are known by their queues."""
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


def _import_changes(directory: Path, state: BrokerState) -> bool:
    """Take over what RocketMQ has changed since Eruca closed the store; tell whether it has.

    What cannot be read is left alone: the log knows everything that Eruca ever said.
    """
    try:
        loaded = config_snapshots.load(directory, only_foreign=True, known=state.groups)
    except config_snapshots.UnreadableConfigError as error:
        logger.warning("config files are damaged and will be written anew", fault=str(error))
        return False
    events: list[Event] = [*loaded.topics, *loaded.groups, *loaded.offsets]
    for event in events:
        state.apply(event, 0)
    if events:
        logger.info(
            "state changed by RocketMQ", topics=len(loaded.topics), groups=len(loaded.groups)
        )
    return bool(events)
