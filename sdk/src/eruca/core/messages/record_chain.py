"""Find the records in a stretch of log: each one's size tells where the next one begins.

Only heads are read, so the records themselves may be damaged. The chain says where it ends, and
why; the caller knows what that means.

Source: RocketMQ 5.3, ``CommitLog.recoverAbnormally``.
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
from eruca.core.messages.record_columns import LogBuffer

RECORD_HEAD: Final = struct.Struct(">iI")  # a record's size and magic


class Chain(NamedTuple):
    """Records that follow each other."""

    starts: list[int]  # counted from the start of the buffer
    stop: int  # behind the last of them
    is_full: bool = False  # a blank record follows: the log continues in the next segment
    fault: str | None = None  # of the record at ``stop``; None: there may be more, or it is the end


def chain(buffer: LogBuffer, position: int, *, count_max: int, end: int | None = None) -> Chain:
    """Follow the sizes from record to record.

    If a record is not whole in the buffer, but its segment goes on behind it, the chain stops
    before that record, without a fault.

    Args:
        buffer: Bytes of one segment.
        position: The beginning of a record, counted from the start of the buffer.
        count_max: The maximum number of records.
        end: The segment's end, counted from the start of the buffer; None: the buffer's end.
    """
    starts: list[int] = []
    unpack, held = RECORD_HEAD.unpack_from, len(buffer)
    end = held if end is None else end
    while len(starts) < count_max:
        if position + BLANK_SIZE_MIN > end:
            return Chain(starts, position, fault="the segment ends without a blank record")
        if position + BLANK_SIZE_MIN > held:
            break
        size, magic = unpack(buffer, position)
        if magic in (MAGIC_V1, MAGIC_V2) and RECORD_SIZE_MIN <= size <= end - position:
            if size > held - position:
                break
            starts.append(position)
            position += size
        elif magic == MAGIC_BLANK and size == end - position:
            return Chain(starts, position, is_full=True)
        elif size == 0 and magic == 0:
            break
        else:
            fault = f"size {size} or magic {magic:#010x} is wrong"
            return Chain(starts, position, fault=fault)
    return Chain(starts, position)
