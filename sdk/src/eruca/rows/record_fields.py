"""The fixed fields of many records at once, and the positions of their variable parts.

numpy gathers each field from all records in one step. The variable parts, body and properties, are
not copied: they are elements of one Arrow array over the records' own bytes. No Python code runs
per message.

Source: RocketMQ 5.3, ``MessageDecoder``; :mod:`eruca.contract.records` describes the layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eruca.contract.records import (
    IPV4_HOST_SIZE,
    IPV6_HOST_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    Buffer,
    DamagedRecordError,
    RecordLayout,
    SysFlag,
)

Int32Array: TypeAlias = NDArray[np.int32]
ArrowArray: TypeAlias = Any  # pyarrow has no types
Int64Array: TypeAlias = NDArray[np.int64]

_HEAD: Final = np.dtype(
    {
        "names": [
            "size", "magic", "queue_id", "flag", "queue_offset", "log_offset", "sys_flag", "born",
        ],
        "formats": [">i4", ">u4", ">i4", ">i4", ">i8", ">i8", ">i4", ">i8"],
        "offsets": [0, 4, 12, 16, 20, 28, 36, 40],
        "itemsize": RecordLayout.BORN_HOST,
    }
)  # fmt: skip
_TAIL: Final = np.dtype(
    [("reconsume_times", ">i4"), ("prepared_offset", ">i8"), ("body_size", ">i4")]
)
_EXTRA_V6: Final = IPV6_HOST_SIZE - IPV4_HOST_SIZE
_PARTS: Final = 4  # elements of each record: header, body, topic with the lengths, properties


@dataclass(frozen=True, slots=True)
class RecordFields:
    """Fields of n records, each column of n numbers."""

    buffer: Buffer
    sizes: Int64Array
    queue_ids: Int32Array
    flags: Int32Array
    queue_offsets: Int64Array
    log_offsets: Int64Array
    sys_flags: Int32Array
    born_ms: Int64Array
    stored_ms: Int64Array
    store_host_starts: Int64Array  # in the buffer
    store_host_sizes: Int64Array  # 8 or 20
    reconsume_times: Int32Array
    prepared_offsets: Int64Array
    parts: ArrowArray  # binary, four elements for each record

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.sizes)

    def bodies(self) -> ArrowArray:
        """Return the bodies as stored: binary, perhaps compressed."""
        return self._part(1)

    def property_texts(self) -> ArrowArray:
        """Return the properties as stored: binary."""
        return self._part(3)

    def _part(self, index: int) -> ArrowArray:
        return self.parts.take(pa.array(np.arange(index, _PARTS * self.count, _PARTS)))


def read_fields(buffer: Buffer, sizes: Int64Array) -> RecordFields:
    """Read the fields of the records that fill *buffer*, at least one, of the given *sizes*.

    Raises:
        DamagedRecordError: The bytes are not such records.
    """
    ends = sizes.cumsum()
    starts = ends - sizes
    if int(sizes.min()) < RECORD_SIZE_MIN or int(ends[-1]) != len(buffer):
        raise DamagedRecordError("the sizes are not those of records that fill the buffer")
    head = gathered(buffer, starts, _HEAD.itemsize).view(_HEAD)
    magic = head["magic"]
    is_v2 = magic == MAGIC_V2
    _require(((magic == MAGIC_V1) | is_v2) & (head["size"] == sizes), "heads")
    sys_flags = head["sys_flag"].astype(np.int32)
    stored_at = starts + (RecordLayout.BORN_HOST + IPV4_HOST_SIZE)
    stored_at += _extra(sys_flags, SysFlag.BORN_HOST_V6)
    store_host_sizes = IPV4_HOST_SIZE + _extra(sys_flags, SysFlag.STORE_HOST_V6)
    tail_starts = stored_at + 8 + store_host_sizes
    body_starts = tail_starts + _TAIL.itemsize
    _require(body_starts + 3 <= ends, "hosts")
    tail = gathered(buffer, tail_starts, _TAIL.itemsize).view(_TAIL)
    body_ends = body_starts + tail["body_size"]
    _require((tail["body_size"] >= 0) & (body_ends + 3 <= ends), "bodies")
    property_starts = _behind_topics(buffer, body_ends, is_v2) + 2
    _require(property_starts <= ends, "topics")
    property_sizes = gathered(buffer, property_starts - 2, 2).view(">u2")
    _require(property_starts + property_sizes == ends, "properties")
    return RecordFields(
        buffer=buffer,
        sizes=sizes,
        queue_ids=head["queue_id"].astype(np.int32),
        flags=head["flag"].astype(np.int32),
        queue_offsets=head["queue_offset"].astype(np.int64),
        log_offsets=head["log_offset"].astype(np.int64),
        sys_flags=sys_flags,
        born_ms=head["born"].astype(np.int64),
        stored_ms=gathered(buffer, stored_at, 8).view(">i8").astype(np.int64),
        store_host_starts=stored_at + 8,
        store_host_sizes=store_host_sizes,
        reconsume_times=tail["reconsume_times"].astype(np.int32),
        prepared_offsets=tail["prepared_offset"].astype(np.int64),
        parts=_parts(buffer, starts, body_starts, body_ends, property_starts),
    )


def gathered(buffer: Buffer, starts: Int64Array, width: int) -> NDArray[Any]:
    """Copy *width* bytes from each of *starts* on, all inside the buffer."""
    every: NDArray[Any] = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer, strides=(1,))
    return every[starts]


def _extra(sys_flags: Int32Array, flag: SysFlag) -> Int64Array:
    """Return the number of bytes by which each host exceeds an IPv4 one."""
    return np.where(sys_flags & int(flag), _EXTRA_V6, 0)


def _behind_topics(buffer: Buffer, body_ends: Int64Array, is_v2: NDArray[np.bool_]) -> Int64Array:
    one_byte: Int64Array = np.frombuffer(buffer, np.uint8)[body_ends].astype(np.int64)
    if not is_v2.any():
        return body_ends + 1 + one_byte
    two_bytes = gathered(buffer, body_ends, 2).view(">u2").astype(np.int64)
    return body_ends + np.where(is_v2, 2 + two_bytes, 1 + one_byte)


def _parts(buffer: Buffer, *starts: Int64Array) -> ArrowArray:
    offsets = np.empty(_PARTS * len(starts[0]) + 1, np.int32)
    for index, column in enumerate(starts):
        offsets[index:-1:_PARTS] = column
    offsets[-1] = len(buffer)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(buffer)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _require(holds: NDArray[np.bool_], what: str) -> None:
    if not holds.all():
        raise DamagedRecordError(
            f"record {int(np.argmin(holds))} of the block is invalid: its {what} do not add up"
        )
