"""A run: whole writes of a master's log, verified before a replica appends them.

A run continues the replica's log where it ends, byte for byte. It consists of whole records. If it
goes on in the next segment, the blank record that fills the last segment is part of it, and so is
at least one record after that. A group of records lies in one run.

=========  ==========================================================================
Refused    Reason
=========  ==========================================================================
shifted    it does not begin where the replica's log ends
cut        it ends in the middle of a record or a group, or after a blank record
damaged    a size, a magic, a part, a record's own log offset or its CRC is wrong
foreign    it has a snapshot of another log, an epoch that does not ascend, or queue offsets that
           do not follow
=========  ==========================================================================

Records of another log whose offsets all agree by chance pass. So a replica must compare the ends of
both logs before it requests runs (:mod:`eruca_broker.core.replication.lineage`).

A replica does not rely on the master's verification. The loops over records are those of recovery,
vectorised or compiled. Python visits batches: neighbouring records of one queue with one store
time, and single events.

RocketMQ's own records are refused: their queues may begin again without an event. Such segments
are copied as files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import BLANK_SIZE_MIN, HOST_BITS
from eruca.core.messages.record_columns import RecordColumns, TopicColumn
from eruca_broker.core.batches.batch import Batch, read_batch
from eruca_broker.core.consume_queue_entry import build_entries
from eruca_broker.core.log.recovery import walk
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.core.state.events import Event, StateSnapshot, UnknownEventError, decode_event
from eruca_broker.core.state.record_groups import GROUP_HEADS


class RefusedRunError(Exception):
    """The bytes do not continue this log; nothing has changed."""


class StoredBatch(NamedTuple):
    """Neighbouring records of one queue, stamped by the master."""

    batch: Batch
    queue_offset: int  # of the first message
    log_offset: int  # of the first record
    store_timestamp: int  # ms since the epoch, of all of them
    entries: bytearray  # for its consume queue
    event: Event | None  # the content of a control record, which is a batch of its own


class ProvedRun(NamedTuple):
    """A verified run."""

    log_offset: int  # of its first byte
    stretches: list[memoryview]  # its bytes by segment; each but the last fills its segment
    batches: list[StoredBatch]  # at least one, in log order


def prove_run(
    run: memoryview, log_offset: int, *, room: int, segment_bytes: int, log_id: str, epoch: int
) -> ProvedRun:
    """Verify a run, and return its batches.

    Args:
        run: Its bytes.
        log_offset: Log offset of its first byte.
        room: Bytes left in the segment in which it begins.
        segment_bytes: Bytes of each later segment.
        log_id: The id of the log; empty: unknown.
        epoch: The log's last epoch; 0: none.

    Raises:
        RefusedRunError: It is cut, damaged or foreign.
    """
    stretches: list[memoryview] = []
    batches: list[StoredBatch] = []
    position, is_filled = 0, True
    while position < len(run):
        stretch = run[position : position + room]
        is_filled = len(stretch) == room
        batches += _proved(stretch, log_offset + position, is_filled=is_filled, room=room)
        stretches.append(stretch)
        position += len(stretch)
        room = segment_bytes
    end = log_offset + len(run)
    if is_filled:
        raise RefusedRunError(f"expected a record at the run's end, {end}, found none")
    _check_events(batches, end, log_id)
    _check_epochs(batches, log_offset, epoch)
    return ProvedRun(log_offset, stretches, batches)


def _proved(
    stretch: memoryview, log_offset: int, *, is_filled: bool, room: int
) -> Iterator[StoredBatch]:
    """Verify a stretch within one segment, and yield its batches."""
    end, is_full, fault = 0, False, None
    for step in walk(stretch, 0, log_offset):
        end, is_full, fault = step.end, step.is_full, step.fault
        if step.columns is not None:
            yield from _batches(step.columns, step.topics, log_offset)
    if is_full != is_filled or (not is_full and end < len(stretch)):
        raise RefusedRunError(
            f"expected a whole record at log offset {log_offset + end}: "
            f"{fault or 'the run ends there, or has no record there'}"
        )
    if not is_filled and room - len(stretch) < BLANK_SIZE_MIN:
        raise RefusedRunError(f"no blank record fits after log offset {log_offset + end}")


def _batches(columns: RecordColumns, topics: TopicColumn, log_offset: int) -> Iterator[StoredBatch]:
    """Yield valid records as batches; *log_offset* is that of the buffer."""
    if not columns.is_queued().all():
        raise RefusedRunError(
            "expected records that Eruca wrote, found one of RocketMQ's transactions"
        )
    is_event = topics.rows_of(EVENTS_TOPIC)
    breaks = np.flatnonzero(
        (np.diff(topics.numbers) != 0)
        | (np.diff(columns.queue_ids) != 0)
        | (np.diff(columns.queue_offsets) != 1)
        | (np.diff(columns.store_timestamps) != 0)
        | (np.diff(columns.sys_flags & HOST_BITS) != 0)  # which lay records out differently
        | is_event[1:]
    )
    view = memoryview(columns.buffer)
    for first, last in pairwise([0, *(breaks + 1).tolist(), len(columns.starts)]):
        rows = slice(first, last)
        begin = int(columns.starts[first])
        end = int(columns.starts[last - 1] + columns.sizes[last - 1])
        topic = topics.names[int(topics.numbers[first])]
        queue_id = int(columns.queue_ids[first])
        batch = read_batch(topic, queue_id, bytearray(view[begin:end]), last - first)
        entries = build_entries(
            columns.starts[rows] + log_offset, columns.sizes[rows], batch.found.tag_codes
        )
        yield StoredBatch(
            batch,
            int(columns.queue_offsets[first]),
            log_offset + begin,
            int(columns.store_timestamps[first]),
            bytearray(entries.tobytes()),
            _event_of(columns, first) if is_event[first] else None,
        )


def _event_of(columns: RecordColumns, row: int) -> Event:
    begin = int(columns.body_starts[row])
    body = memoryview(columns.buffer)[begin : begin + int(columns.body_sizes[row])]
    try:
        return decode_event(bytes(body))
    except UnknownEventError as error:
        raise RefusedRunError(str(error)) from error


def _check_events(batches: list[StoredBatch], end: int, log_id: str) -> None:
    """Refuse a snapshot of another log, and a group that ends after the run's *end*."""
    last: StoredBatch | None = None
    for stored in batches:
        if stored.event is None:
            continue
        last = stored
        if isinstance(stored.event, StateSnapshot) and log_id not in ("", stored.event.log_id):
            raise RefusedRunError(
                f"expected a snapshot of log {log_id}, found one of log {stored.event.log_id}"
            )
    if last is not None and isinstance(last.event, GROUP_HEADS):
        group_end = last.log_offset + last.batch.size + last.event.group_size
        if group_end > end:
            raise RefusedRunError(
                f"expected the group at log offset {last.log_offset} up to {group_end}, found the "
                f"run's end, {end}"
            )


def _check_epochs(batches: Iterable[StoredBatch], end: int, last: int) -> None:
    """Refuse an epoch that is not greater than all before it (rule 13), or begins elsewhere.

    Args:
        batches: Those of the run.
        end: Log offset of the run's first byte.
        last: The last epoch before it.
    """
    for stored in batches:
        if isinstance(stored.event, EpochBegan):
            if stored.event.epoch <= last:
                raise RefusedRunError(
                    f"expected an epoch after {last} at log offset {stored.log_offset}, found "
                    f"{stored.event.epoch}"
                )
            if stored.event.begun_at != end:
                raise RefusedRunError(
                    f"expected epoch {stored.event.epoch} to begin at log offset {end}, where the "
                    f"last record ends, found {stored.event.begun_at}"
                )
            last = stored.event.epoch
        end = stored.log_offset + stored.batch.size
