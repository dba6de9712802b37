"""Proving once more what has lain in the log for long: a disk may change its mind.

A record is believed because it was proved when it came, and after a crash again. Nobody looks at
it between then and the day that somebody reads it. A scrub reads the log from end to end, slowly,
so that damage is known while there is still a backup or a replica to take the record from.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from eruca.contract.records import (
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
)
from eruca_broker.core.recovery import walk

_HEAD: Final = struct.Struct(">iI")


class Examined(NamedTuple):
    """What a stretch of the log was found to hold."""

    next_offset: int  # log offset to go on from
    size_needed: int  # bytes that must be there from then on; 0: any number will do
    damage: str | None  # what is wrong with the record that ``next_offset`` leaves behind
    damaged_at: int = 0  # … and its log offset


def examine(stretch: bytes, log_offset: int, segment_end: int) -> Examined:
    """Prove the records of a stretch up to the first that is damaged, or cut by the stretch's end.

    Args:
        stretch: Bytes of one segment, a few at least; it may end anywhere.
        log_offset: Where it begins, as does a record.
        segment_end: Log offset behind the last byte of the segment.
    """
    step = next(walk(stretch, 0, log_offset))
    offset, rest = log_offset + step.end, stretch[step.end :]
    if len(rest) < BLANK_SIZE_MIN:
        return Examined(offset, BLANK_SIZE_MIN if rest else 0, None)
    size, magic = _HEAD.unpack_from(rest)
    room = segment_end - offset
    if magic == MAGIC_BLANK and size == room:
        return Examined(segment_end, 0, None)
    if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_SIZE_MIN <= size <= room:
        fault = f"size {size} or magic {magic:#010x} is wrong; the segment's rest cannot be read"
        return Examined(segment_end, 0, fault, offset)
    if step.fault is None or size > len(rest):
        return Examined(offset, size, None)  # the next stretch begins with it, and has all of it
    return Examined(offset + size, 0, step.fault, offset)
