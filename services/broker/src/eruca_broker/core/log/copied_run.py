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
           do not follow (:meth:`~eruca_broker.store.writing.writer.Writer.copied` checks these)
=========  ==========================================================================

Records of another log whose offsets all agree by chance pass. So a replica must compare the ends of
both logs before it requests runs (:mod:`eruca_broker.core.replication.lineage`).

A replica does not rely on the master's verification. Compiled code verifies the records and divides
them into batches (``native/stored.c``): neighbouring records of one queue with one store time, and
single events. If one of them is not plainly valid, recovery's walk examines the whole stretch and
names the fault. Python visits batches. They refer to the run's bytes, which are in memory once.

A log that RocketMQ began has its records before the first event. They are copied like others, with
what is special about them: a queue may begin again without an event, and prepared and rolled back
records are in no queue.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import (
    BLANK_SIZE_MIN,
    HOST_BITS,
    MAGIC_BLANK,
    RECORD_SIZE_MIN,
    SysFlag,
    layout_of,
)
from eruca.core.messages.record_chain import RECORD_HEAD
from eruca.core.messages.record_columns import RecordColumns, TopicColumn
from eruca_broker.core.batches.batch import Batch, entries_of, read_batch, read_stored
from eruca_broker.core.log.recovery import is_legal_topic, walk
from eruca_broker.core.native.library import CRC32_AT, address_of, address_of_array, divide_run
from eruca_broker.core.properties.found import FoundProperties
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.core.state.events import Event, StateSnapshot, UnknownEventError, decode_event
from eruca_broker.core.state.record_groups import GROUP_HEADS

_DIVIDED: Final = struct.Struct("=qqIIIIIIII")  # ``struct run_batch``
_DIVIDED_MAX: Final = 512  # batches that one call divides
_SINGLE: Final = EVENTS_TOPIC.encode()


class RefusedRunError(Exception):
    """The bytes do not continue this log; nothing has changed."""


class StoredBatch(NamedTuple):
    """Neighbouring records of one queue, stamped by the master."""

    batch: Batch
    queue_offset: int  # of the first message
    log_offset: int  # of the first record
    store_timestamp: int  # ms since the epoch, of all of them
    entries: bytearray  # for its consume queue; empty: it is in none
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
        run: Its bytes, which the batches refer to.
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
        place = log_offset + position
        proved = _plain(stretch, place, room=room)
        if proved is None:
            proved = list(_proved(stretch, place, is_filled=is_filled, room=room))
        batches += proved
        stretches.append(stretch)
        position += len(stretch)
        room = segment_bytes
    end = log_offset + len(run)
    if is_filled:
        raise RefusedRunError(f"expected a record at the run's end, {end}, found none")
    _check_events(batches, end, log_id)
    _check_epochs(batches, log_offset, epoch)
    return ProvedRun(log_offset, stretches, batches)


def _plain(stretch: memoryview, log_offset: int, *, room: int) -> list[StoredBatch] | None:
    """Return the batches of a stretch if all its records are plainly valid, else None."""
    size = len(stretch)
    address = address_of_array(np.frombuffer(stretch, np.uint8), np.uint8)  # it may be read-only
    divided = bytearray(_DIVIDED.size * min(size // RECORD_SIZE_MIN + 1, _DIVIDED_MAX))
    batches: list[StoredBatch] = []
    at = 0
    while count := divide_run(
        *(address + at, size - at, log_offset + at),
        *(_SINGLE, len(_SINGLE), CRC32_AT),
        *(address_of(divided), len(divided) // _DIVIDED.size),
    ):
        for row in _DIVIDED.iter_unpack(memoryview(divided)[: count * _DIVIDED.size]):
            queue_offset, store_timestamp, first, end, number, queue_id, hosts, *place, _ = row
            topic_at, topic_size = at + place[0], place[1]
            topic = _topic_of(bytes(stretch[topic_at : topic_at + topic_size]))
            if topic is None:
                return None
            begin = at + first
            records, layout = stretch[begin : at + end], layout_of(hosts)
            batch = read_stored(
                topic, queue_id, records, address + begin, layout=layout, count=number
            )
            its_offset = log_offset + begin
            entries = entries_of(batch, its_offset)
            event = _decoded(bytes(_body_of(batch))) if topic == EVENTS_TOPIC else None
            batches.append(
                StoredBatch(batch, queue_offset, its_offset, store_timestamp, entries, event)
            )
        at += end
        if at == size:
            break
    if at < size:
        if size - at < BLANK_SIZE_MIN or size < room:
            return None
        rest, magic = RECORD_HEAD.unpack_from(stretch, at)
        return batches if magic == MAGIC_BLANK and rest == size - at else None
    return batches if room - size >= BLANK_SIZE_MIN else None


def _body_of(batch: Batch) -> memoryview:
    """Return the body of a batch's first record."""
    begin = batch.start + batch.layout.body
    size = int.from_bytes(batch.buffer[begin - 4 : begin])
    return memoryview(batch.buffer)[begin : begin + size]


@lru_cache(maxsize=4096)
def _topic_of(raw: bytes) -> str | None:
    """Return a topic's name; None if it is not possible."""
    name = raw.decode("utf-8", "replace")
    return name if is_legal_topic(name) else None


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
    is_queued, is_indexed = columns.is_queued(), columns.is_indexed()
    is_event = topics.rows_of(EVENTS_TOPIC)
    breaks = np.flatnonzero(
        (np.diff(topics.numbers) != 0)
        | (np.diff(columns.queue_ids) != 0)
        | (np.diff(columns.queue_offsets) != 1)
        | (np.diff(columns.store_timestamps) != 0)
        # Hosts lay records out differently; prepared and rolled back records are in no queue.
        | (np.diff(columns.sys_flags & (HOST_BITS | SysFlag.ROLLBACK)) != 0)
        | is_event[1:]
    )
    view = memoryview(columns.buffer)
    for first, last in pairwise([0, *(breaks + 1).tolist(), len(columns.starts)]):
        begin = int(columns.starts[first])
        end = int(columns.starts[last - 1] + columns.sizes[last - 1])
        topic = topics.names[int(topics.numbers[first])]
        queue_id = int(columns.queue_ids[first])
        batch = read_batch(topic, queue_id, bytearray(view[begin:end]), last - first)
        entries = entries_of(batch, log_offset + begin) if is_queued[first] else bytearray()
        if not is_indexed[first]:
            batch.found = FoundProperties(0)
        yield StoredBatch(
            batch,
            int(columns.queue_offsets[first]),
            log_offset + begin,
            int(columns.store_timestamps[first]),
            entries,
            _event_of(columns, first) if is_event[first] else None,
        )


def _event_of(columns: RecordColumns, row: int) -> Event:
    begin = int(columns.body_starts[row])
    body = memoryview(columns.buffer)[begin : begin + int(columns.body_sizes[row])]
    return _decoded(bytes(body))


def _decoded(body: bytes) -> Event:
    try:
        return decode_event(body)
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
