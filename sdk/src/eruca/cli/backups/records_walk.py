"""Walk over the records of a stretch of the log: where each begins, and when it was stored. Pure.

The broker has verified the records' checksums before it sent them. The walk proves that the bytes
are a stretch of this log, at this place: sizes and magics add up, and each record names its own log
offset.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from eruca.contract.records import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    Buffer,
    DamagedRecordError,
    RecordLayout,
    layout_of,
)

_HEAD: Final = struct.Struct(">iI")  # size, magic
_OFFSET_AND_FLAG: Final = struct.Struct(">qi")
_I64: Final = struct.Struct(">q")
assert RecordLayout.SYS_FLAG == RecordLayout.LOG_OFFSET + 8


class Walked(NamedTuple):
    """The records of a stretch up to some place."""

    size: int  # bytes
    last: int  # position of the last record; 0 if there is none
    stored_ms: int  # store time of the last record


def walk(
    data: Buffer, log_offset: int, *, end_offset: int | None = None, until_ms: int | None = None
) -> Walked:
    """Return the records of *data*, up to the first one that is not wanted.

    Args:
        data: Whole records, back to back.
        log_offset: Of the first byte.
        end_offset: Only records that end there or before; None: all.
        until_ms: Only records stored at this time or before, in ms; None: all.

    Raises:
        DamagedRecordError: The bytes are not that.
    """
    position, last, stored_ms, size_all = 0, 0, 0, len(data)
    while position < size_all:
        if size_all - position < RECORD_SIZE_MIN:
            raise _unfit(log_offset + position, "it is cut")
        size, magic = _HEAD.unpack_from(data, position)
        if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_SIZE_MIN <= size <= size_all - position:
            raise _unfit(log_offset + position, f"its size is {size}, its magic {magic:#x}")
        own, flag = _OFFSET_AND_FLAG.unpack_from(data, position + RecordLayout.LOG_OFFSET)
        if own != log_offset + position:
            raise _unfit(log_offset + position, f"it says that it is at {own}")
        (stored,) = _I64.unpack_from(data, position + layout_of(flag).store_timestamp)
        if end_offset is not None and own + size > end_offset:
            break
        if until_ms is not None and stored > until_ms:
            break
        last, stored_ms = position, stored
        position += size
    return Walked(position, last, stored_ms)


def _unfit(log_offset: int, why: str) -> DamagedRecordError:
    return DamagedRecordError(f"expected a record of the log at log offset {log_offset}: {why}")
