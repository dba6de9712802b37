"""Verify old records again: a disk may return other bytes than were written.

A record is verified when it arrives, and again after a crash. Nobody looks at it between then and
the day on which it is read. A scrub reads the log slowly from end to end. So damage is detected
while a backup from which to restore the record still exists.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from eruca.contract.records import (
    BLANK_SIZE_MIN,
    HOST_BITS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    RecordLayout,
    layout_of,
)
from eruca_broker.core.log.recovery import walk

_HEAD: Final = struct.Struct(">iI")
_LAYOUT_SIZE_MAX: Final = layout_of(HOST_BITS).body  # bytes in front of a record's body
_BEHIND_BODY_MAX: Final = 2 * (2 + 0xFFFF)  # bytes of topic and properties, each with its length


class Examined(NamedTuple):
    """The result of examining a stretch of the log."""

    next_offset: int  # log offset at which to continue
    size_needed: int  # bytes required from there on; 0: any number
    damage: str | None  # the fault of the record that ``next_offset`` skips
    damaged_at: int = 0  # … and its log offset


def examine(stretch: bytes, log_offset: int, segment_end: int, end_offset: int) -> Examined:
    """Verify the records of a stretch up to the first damaged one, or one that extends beyond it.

    Args:
        stretch: Bytes of one segment, a few at least; it may end anywhere.
        log_offset: Its log offset, at which a record begins.
        segment_end: Log offset behind the last byte of the segment.
        end_offset: Log offset behind the last byte of it to verify, where a record ends.
    """
    step = next(walk(stretch, 0, log_offset))
    offset, rest = log_offset + step.end, stretch[step.end :]
    room = end_offset - offset
    if len(rest) < min(BLANK_SIZE_MIN, room):
        return Examined(offset, BLANK_SIZE_MIN if rest else 0, None)
    if not room:
        return Examined(offset, 0, None)
    size, magic = _HEAD.unpack_from(rest) if room >= BLANK_SIZE_MIN else (0, 0)
    if magic == MAGIC_BLANK and size == segment_end - offset:
        return Examined(segment_end, 0, None)
    is_record = magic in (MAGIC_V1, MAGIC_V2) and RECORD_SIZE_MIN <= size <= room
    is_cut = size > len(rest)
    if is_record and is_cut:
        if len(rest) < _LAYOUT_SIZE_MAX:
            return Examined(offset, min(size, _LAYOUT_SIZE_MAX), None)
        is_record = _can_be_size(size, rest)
    if not is_record:
        fault = f"size {size} or magic {magic:#010x} is wrong; the segment's rest cannot be read"
        return Examined(segment_end, 0, fault, offset)
    if step.fault is None or is_cut:
        return Examined(offset, size, None)  # the next stretch begins with it and has all of it
    return Examined(offset + size, 0, step.fault, offset)


def _can_be_size(size: int, record: bytes) -> bool:
    """Tell whether a record of *size* bytes can have the body size that its head, *record*, says.

    A size with one wrong bit may be that of a whole segment, which must not be read at once.
    """
    at = RecordLayout.SYS_FLAG
    layout = layout_of(int.from_bytes(record[at : at + 4]))
    body_size = int.from_bytes(record[layout.body_size : layout.body])
    return 0 <= size - layout.body - body_size <= _BEHIND_BODY_MAX
