"""Repair damaged records of the log by a peer's copy of them (rule 11).

All replicas of a group have the same bytes. So records that a disk has damaged are still whole at a
peer. Their copy is written in their place only if it can be nothing else::

    it proves itself        each record's structure, own log offset and checksum are right
    damaged ones only       a sound record is never overwritten: a copy that differs is another
                            log's
    it fills the place      it ends where the log has the beginning of another record, or its own
                            end; or the last record here has the size of the copy's

A bad sector may hold several records, so a copy may, too. Nothing else of the log changes, and
nothing is ever deleted because of damage.

The copy is written and flushed through a descriptor of its own: a flush through the log's one would
take the errors of records that the log has not flushed yet.
"""

from __future__ import annotations

import os
from itertools import pairwise

from eruca.contract.errors import RecordNotFoundError
from eruca_broker.core.log.recovery import walk
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.log.segment import Segment
from eruca_broker.store.reading.log_reader import LogReader
from eruca_chassis.finishing import finished_in_thread


class RefusedCopyError(Exception):
    """A copy of records that does not belong in the log; nothing has changed."""


async def mend(log: CommitLog, reader: LogReader, log_offset: int, copy: bytes) -> bool:
    """Write *copy* in the place of the records from *log_offset* on, durably.

    Return False if they are sound.

    Args:
        log: The log.
        reader: Reads it.
        log_offset: The beginning of a record.
        copy: Whole records of one segment, at least one, as a peer has them; a blank one may be
            the last.

    Raises:
        RecordNotFoundError: The place is outside the log.
        RefusedCopyError: The copy is damaged, or is not that of these records.
        OSError: The disk refuses; the records are still damaged.
    """
    end = log_offset + len(copy)
    segment = log.segment_at(log_offset)
    if segment is None or end > min(segment.end_offset, log.written_offset):
        raise RecordNotFoundError(
            f"the log has no records from {log_offset} to {end} in one segment; it holds "
            f"{log.min_offset} to {log.written_offset}"
        )
    starts = _starts(copy, log_offset, is_segment_end=end == segment.end_offset)
    if not starts:
        raise RefusedCopyError(f"the copy of the record at log offset {log_offset} is damaged")
    position = log_offset - segment.base_offset
    present = memoryview(segment.buffer)[position:]
    if present[: len(copy)] == copy:
        return False
    for begin, stop in pairwise([*starts, len(copy)]):
        here = present[begin : begin + _size_at(present, begin)]
        if here != copy[begin:stop] and _starts(here, log_offset + begin):
            raise RefusedCopyError(
                f"the record at log offset {log_offset + begin} is sound here, and differs from "
                "the copy"
            )
    is_last_as_large = _size_at(present, starts[-1]) == len(copy) - starts[-1]
    ends = (log.written_offset, segment.end_offset)
    if end not in ends and not is_last_as_large and not reader.begins_at(end):
        raise RefusedCopyError(
            f"expected the beginning of a record at log offset {end}, where the copy ends: it may "
            "be another log's; if the record there is damaged, too, the copy must contain it"
        )
    await finished_in_thread(lambda: _write(segment, position, copy))
    return True


def _starts(
    records: bytes | memoryview, log_offset: int, *, is_segment_end: bool = False
) -> list[int]:
    """Return where the records begin; none if they are not whole, valid, and at home there.

    If they reach up to the segment's end, a blank one may be the last.
    """
    starts: list[int] = []
    end, is_full = 0, False
    for step in walk(records, 0, log_offset):
        end, is_full = step.end, step.is_full
        if step.columns is not None:
            starts += step.columns.starts.tolist()
    if is_full and is_segment_end:
        return [*starts, end]
    return starts if end == len(records) else []


def _size_at(present: memoryview, position: int) -> int:
    return int.from_bytes(present[position : position + 4])


def _write(segment: Segment, position: int, copy: bytes) -> None:
    with segment.path.open("r+b", buffering=0) as file:
        rest = memoryview(copy)
        while rest:
            written = os.pwrite(file.fileno(), rest, position)
            rest, position = rest[written:], position + written
        os.fdatasync(file.fileno())
