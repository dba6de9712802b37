"""Whole records back to back, as the log feed sends them. Pure.

Only sizes, magics and log offsets are looked at; whether a record is damaged in itself is another
question (:mod:`eruca_broker.core.records.stored_proof`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eruca.contract.errors import RecordNotFoundError, UnavailableError
from eruca.contract.records import BLANK_SIZE_MIN, MAGIC_BLANK, RECORD_SIZE_MIN, RecordLayout
from eruca_broker.core.damage import RESTORE_FIX
from eruca_broker.core.records.stored_proof import proved_rows


class WholeRecords(NamedTuple):
    """The records at the beginning of some bytes of a segment.

    Attributes:
        starts: The first byte of each, counted from the beginning of the bytes.
        size: Bytes of all of them.
        next_offset: Log offset after them; the segment's end if its rest is unused.
        needed: Bytes that are needed to see the first record whole, if there is none here.
    """

    starts: list[int]
    size: int
    next_offset: int
    needed: int = 0


def whole_records(
    view: memoryview, log_offset: int, *, bytes_max: int, base: int, end: int, stop: int
) -> WholeRecords:
    """Return the whole records at the beginning of *view*, at least one if it has one.

    Args:
        view: Bytes of a segment. A record that goes on behind them is left out.
        log_offset: Log offset of the first byte.
        bytes_max: Maximum bytes of all records but the first.
        base: Log offset at which the segment begins.
        end: Log offset at which it ends.
        stop: Log offset at which the log ends, for the reader.

    Raises:
        RecordNotFoundError: No record starts there.
        UnavailableError: It, or a later one, is so damaged that the start of the next one is
            unknown. Its file may be restored, so the reader must not start again elsewhere.
    """
    starts: list[int] = []
    position, limit = 0, min(end, stop) - log_offset
    while position < limit:
        if len(view) - position < min(RECORD_SIZE_MIN, limit - position):
            return _until(starts, position, log_offset, needed=RECORD_SIZE_MIN)
        size = int.from_bytes(view[position : position + 4])
        if int.from_bytes(view[position + 4 : position + BLANK_SIZE_MIN]) == MAGIC_BLANK:
            return WholeRecords(starts, position, end)
        is_record = own_offset(view, position) == log_offset + position
        if not is_record or not RECORD_SIZE_MIN <= size <= limit - position:
            if not position and log_offset > base:  # perhaps no record should start here
                raise RecordNotFoundError(f"no record starts at log offset {log_offset}")
            raise UnavailableError(
                f"the record at log offset {log_offset + position} is damaged, and the start of "
                "the next one is unknown",
                fix=RESTORE_FIX,
            )
        if position and position + size > bytes_max:
            break
        if position + size > len(view):
            return _until(starts, position, log_offset, needed=size)
        starts.append(position)
        position += size
    return _until(starts, position, log_offset, needed=0)


def _until(starts: list[int], position: int, log_offset: int, *, needed: int) -> WholeRecords:
    return WholeRecords(starts, position, log_offset + position, 0 if starts else needed)


def damaged_among(view: memoryview, found: WholeRecords, log_offset: int) -> list[int]:
    """Return the log offsets of damaged records among those that were *found* in *view*."""
    if not found.starts:
        return []
    begins = np.array(found.starts, np.int64)
    sizes = np.diff(begins, append=found.size)
    sound = proved_rows(view, begins, sizes)
    return [] if sound.all() else (begins[~sound] + log_offset).tolist()


def own_offset(view: memoryview, start: int) -> int:
    """Return the log offset in the own field of the record at *start*."""
    at = start + RecordLayout.LOG_OFFSET
    return int.from_bytes(view[at : at + 8])
