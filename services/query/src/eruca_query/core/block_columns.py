"""A block of the log as columns: the positions of its records, and the fields of all of them.

Finding the beginning of each record takes a walk from one to the next. Everything else is done to
all records in one step.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from eruca.contract.records import (
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    Buffer,
    DamagedRecordError,
    RecordLayout,
    SysFlag,
)
from eruca.core.messages.record_columns import (
    Int64Array,
    RecordColumns,
    TopicColumn,
    read_columns,
    sound_structure,
    strided,
)

_HEAD: Final = struct.Struct(">iI")


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """The records of a block, in log order; each column has one element per record."""

    data: NDArray[np.uint8]
    columns: RecordColumns
    topics: TopicColumn
    born_timestamps: Int64Array

    def __len__(self) -> int:
        return len(self.columns.starts)

    @classmethod
    def of(cls, data: Buffer) -> BlockColumns:
        """Return the columns of the records that lie back to back in *data*.

        Raises:
            DamagedRecordError: The bytes are not valid records.
        """
        starts = record_starts(data)
        if not len(starts):
            empty = np.zeros(0, np.int64)
            columns = RecordColumns(b"", *(empty for _ in range(13)))
            return cls(np.zeros(0, np.uint8), columns, TopicColumn([], empty), empty)
        columns = read_columns(data, starts)
        if not bool(sound_structure(columns).all()):
            raise DamagedRecordError("the parts of a record do not add up to its size")
        born = strided(data, ">i8", 8)[starts + RecordLayout.BORN_TIMESTAMP].astype(np.int64)
        return cls(np.frombuffer(data, np.uint8), columns, TopicColumn.of(columns), born)

    def record(self, row: int) -> bytes:
        """Return the bytes of one record."""
        start = int(self.columns.starts[row])
        return self.data[start : start + int(self.columns.sizes[row])].tobytes()

    def store_host(self, row: int) -> tuple[bytes, int]:
        """Return the address and port of the broker that stored a record, as the record says."""
        flags = int(self.columns.sys_flags[row])
        born_size = 20 if flags & SysFlag.BORN_HOST_V6 else 8
        size = 20 if flags & SysFlag.STORE_HOST_V6 else 8
        at = int(self.columns.starts[row]) + RecordLayout.BORN_HOST + born_size + 8
        raw = self.data[at : at + size].tobytes()
        return raw[:-4], int.from_bytes(raw[-4:], "big", signed=True)


def record_starts(data: Buffer) -> Int64Array:
    """Return the position of each record in *data*.

    Raises:
        DamagedRecordError: The bytes are not records back to back.
    """
    view = memoryview(data)
    unpack, end, position = _HEAD.unpack_from, len(view), 0
    starts: list[int] = []
    while position < end:
        if end - position < BLANK_SIZE_MIN:
            raise DamagedRecordError(f"{end - position} bytes are too few for a record")
        size, magic = unpack(view, position)
        if magic not in (MAGIC_V1, MAGIC_V2):
            if magic == MAGIC_BLANK:
                break  # the rest of a segment, which the feed does not send
            raise DamagedRecordError(f"unknown magic {magic:#010x}")
        if not RECORD_SIZE_MIN <= size <= end - position:
            raise DamagedRecordError(f"size {size} does not fit into the {end - position} bytes")
        starts.append(position)
        position += size
    return np.array(starts, np.int64)
