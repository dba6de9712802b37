"""Finding out what is in a stretch of log: which records, where they end, and why there.

Two answers must never be confused. Bytes behind the last sound record that nobody was promised
are a *torn tail*: they are cut. A record that was durable and no longer reads back is *damage*:
cutting there would lose acknowledged messages, so recovery refuses and leaves the files alone.
:func:`walk` only reports where and why it stopped; the store knows which of the two it is.

A record must pass: a known magic, a size that fits, parts that add up to it, its own log offset,
and its body's CRC. A torn write, a hole of zeros, and stale bytes from before an earlier crash
each fail one of them.

Source: RocketMQ 5.3, ``CommitLog.recoverAbnormally``, ``checkMessageAndReturnSize``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from eruca.contract.records import (
    BLANK_SIZE_MIN,
    BODY_CRC_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
)
from eruca_broker.core.record_columns import LogBuffer, RecordColumns, read_columns, sound_structure

RECORDS_PER_STEP: Final = 32_768  # looked at together; bounds the arrays

_HEAD: Final = struct.Struct(">iI")
_crc32 = zlib_ng.crc32


@dataclass(frozen=True, slots=True)
class Step:
    """Some records in a row, all of them sound."""

    columns: RecordColumns | None  # None: no record in this step
    end: int  # behind the last of them, counted from the start of the buffer
    is_full: bool  # a blank record follows: the log goes on in the next segment
    fault: str | None  # what is wrong with the record at ``end``; None: go on, or the end


def walk(
    buffer: LogBuffer, start: int, base_offset: int, *, check_crc: bool = True
) -> Iterator[Step]:
    """Yield the sound records of a segment from *start* on; the last step says why it ends.

    Args:
        buffer: The whole segment.
        start: Where a record begins, counted from the segment's start.
        base_offset: Log offset of the segment's first byte.
        check_crc: Whether to compare each body with its CRC.
    """
    position = start
    while True:
        starts, stop, is_full, fault = _chain(buffer, position)
        columns = None
        end = stop
        if starts:
            columns = read_columns(buffer, np.array(starts, np.int64))
            sound = _sound(columns, base_offset, check_crc=check_crc)
            if not sound.all():
                first_bad = int(np.argmin(sound))
                end = starts[first_bad]
                is_full, fault = False, "its parts, its log offset or its CRC are wrong"
                columns = read_columns(buffer, columns.starts[:first_bad]) if first_bad else None
        finished = is_full or fault is not None or len(starts) < RECORDS_PER_STEP
        yield Step(columns, end, is_full, fault)
        if finished:
            return
        position = stop


def _chain(buffer: LogBuffer, position: int) -> tuple[list[int], int, bool, str | None]:
    """Follow the sizes from record to record; return starts, stop, is_full and fault."""
    starts: list[int] = []
    unpack, total = _HEAD.unpack_from, len(buffer)
    while len(starts) < RECORDS_PER_STEP:
        if position + BLANK_SIZE_MIN > total:
            return starts, position, False, "the segment ends without a blank record"
        size, magic = unpack(buffer, position)
        if magic in (MAGIC_V1, MAGIC_V2) and RECORD_SIZE_MIN <= size <= total - position:
            starts.append(position)
            position += size
        elif magic == MAGIC_BLANK and size == total - position:
            return starts, position, True, None
        elif size == 0 and magic == 0:
            return starts, position, False, None
        else:
            return starts, position, False, f"size {size} or magic {magic:#010x} is wrong"
    return starts, position, False, None


def _sound(columns: RecordColumns, base_offset: int, *, check_crc: bool) -> NDArray[np.bool_]:
    sound: NDArray[np.bool_] = sound_structure(columns) & (
        columns.log_offsets == columns.starts + base_offset
    )
    if not check_crc:
        return sound
    view = memoryview(columns.buffer)
    starts = np.where(sound, columns.body_starts, 0)
    ends = starts + np.where(sound, columns.body_sizes, 0)
    slices = map(view.__getitem__, map(slice, starts.tolist(), ends.tolist()))
    crcs = np.fromiter(map(_crc32, slices), np.int64, len(starts)) & BODY_CRC_MASK
    stored = np.ndarray((len(view) - 3,), ">i4", columns.buffer, strides=(1,))[columns.starts + 8]
    sound &= crcs == stored
    return sound
