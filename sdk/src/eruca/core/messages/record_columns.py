"""Columns of many records at once: the fields of each, read from the log's bytes.

Recovery and the projections read thousands of records. numpy over unaligned views reads a field of
all of them in one step, without Python code per message.

Source: RocketMQ 5.3, ``CommitLog.checkMessageAndReturnSize``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eruca.contract.records import MAGIC_V2, RecordLayout, SysFlag

Int64Array: TypeAlias = NDArray[np.int64]
_WORD: Final = 8  # bytes compared in one step; a record has more before its topic
_FEW: Final = 64  # records that are looked at one by one
_COMMON_MAX: Final = 16  # topics that are compared with all records
LogBuffer: TypeAlias = Any  # bytes, bytearray, mmap or memoryview over a stretch of the log


@dataclass(slots=True)
class RecordColumns:
    """Fields of n records, in log order. ``starts`` count from the start of the buffer."""

    buffer: LogBuffer
    starts: Int64Array
    sizes: Int64Array
    queue_ids: Int64Array
    queue_offsets: Int64Array
    log_offsets: Int64Array
    sys_flags: Int64Array
    store_timestamps: Int64Array
    body_starts: Int64Array
    body_sizes: Int64Array
    topic_starts: Int64Array
    topic_sizes: Int64Array
    properties_starts: Int64Array
    properties_sizes: Int64Array

    def is_queued(self) -> NDArray[np.bool_]:
        """Tell which records are in a consume queue: all except prepared and rolled back ones."""
        queued: NDArray[np.bool_] = (self.sys_flags & SysFlag.PREPARED) == 0
        return queued

    def is_indexed(self) -> NDArray[np.bool_]:
        """Tell which records' keys are indexed: all except rolled back ones."""
        indexed: NDArray[np.bool_] = (self.sys_flags & SysFlag.ROLLBACK) != SysFlag.ROLLBACK
        return indexed


class TopicColumn(NamedTuple):
    """Each record's topic, as an index into the occurring topics."""

    names: list[str]
    numbers: Int64Array

    @classmethod
    def of(cls, columns: RecordColumns) -> TopicColumn:
        """Return the topics; a record whose structure is invalid has an empty one."""
        view = memoryview(columns.buffer)
        # Only a valid structure proves that the topic lies inside its record.
        sizes = np.where(sound_structure(columns), columns.topic_sizes, 0)
        starts, ends = columns.topic_starts, columns.topic_starts + sizes
        known: dict[bytes, int] = {}
        numbers = np.zeros(len(ends), np.int64)
        # Most records belong to few topics, each of which is compared with all records at once.
        left = np.arange(len(ends))
        while len(left) > _FEW and len(known) < _COMMON_MAX:
            name = bytes(view[starts[left[0]] : ends[left[0]]])
            its = sizes[left] == len(name)
            its[its] = _ending_with(columns.buffer, ends[left[its]], name)
            its[0] = True  # the loop ends, even if a disk returns other bytes the next time
            numbers[left[its]] = known.setdefault(name, len(known))
            left = left[~its]
        numbers[left] = np.fromiter(
            (
                known.setdefault(bytes(view[start:end]), len(known))
                for start, end in zip(starts[left].tolist(), ends[left].tolist(), strict=True)
            ),
            np.int64,
            len(left),
        )
        return cls([name.decode("utf-8", "replace") for name in known], numbers)

    def rows_of(self, name: str) -> NDArray[np.bool_]:
        """Tell which records belong to the topic *name*."""
        number = self.names.index(name) if name in self.names else -1
        rows: NDArray[np.bool_] = self.numbers == number
        return rows


def read_columns(buffer: LogBuffer, starts: Int64Array) -> RecordColumns:
    """Return the columns of the records at *starts*, whose sizes and magics must be valid.

    The lengths inside a record are not checked; :func:`sound_structure` tells whether they add up.
    """
    words = strided(buffer, ">i8", 8)
    halves = strided(buffer, ">i4", 4)
    head = words[starts].astype(np.int64)
    sizes = head >> 32
    two_byte_topic = (head & 0xFFFF_FFFF) == MAGIC_V2
    flags = halves[starts + RecordLayout.SYS_FLAG].astype(np.int64)
    born_extra = np.where(flags & SysFlag.BORN_HOST_V6, 12, 0)
    store_extra = np.where(flags & SysFlag.STORE_HOST_V6, 12, 0)
    body_size_at = starts + 84 + born_extra + store_extra
    body_sizes = halves[_inside(body_size_at, starts, sizes - 2)].astype(np.int64)
    body_starts = body_size_at + 4
    body_ends = _inside(body_starts + body_sizes, starts, sizes)
    # One or two bytes of length: the low bytes of the four that end there.
    topic_starts = body_ends + np.where(two_byte_topic, 2, 1)
    topic_lengths = halves[topic_starts - 4].astype(np.int64)
    topic_sizes = topic_lengths & np.where(two_byte_topic, 0xFFFF, 0xFF)
    topic_ends = _inside(topic_starts + topic_sizes, starts, sizes)
    return RecordColumns(
        buffer=buffer,
        starts=starts,
        sizes=sizes,
        queue_ids=halves[starts + RecordLayout.QUEUE_ID].astype(np.int64),
        queue_offsets=words[starts + RecordLayout.QUEUE_OFFSET].astype(np.int64),
        log_offsets=words[starts + RecordLayout.LOG_OFFSET].astype(np.int64),
        sys_flags=flags,
        store_timestamps=words[starts + 56 + born_extra].astype(np.int64),
        body_starts=body_starts,
        body_sizes=body_sizes,
        topic_starts=topic_starts,
        topic_sizes=topic_sizes,
        properties_starts=topic_ends + 2,
        properties_sizes=halves[topic_ends - 2].astype(np.int64) & 0xFFFF,
    )


def sound_structure(columns: RecordColumns) -> NDArray[np.bool_]:
    """Tell for which records the parts add up exactly to the whole."""
    ends = columns.properties_starts + columns.properties_sizes
    sound: NDArray[np.bool_] = (
        (columns.body_sizes >= 0)
        & (columns.topic_starts + columns.topic_sizes + 2 == columns.properties_starts)
        & (ends == columns.starts + columns.sizes)
    )
    return sound


def _inside(positions: Int64Array, starts: Int64Array, sizes: Int64Array) -> Int64Array:
    """Keep positions inside their records, so that a damaged length cannot lead outside."""
    clipped: Int64Array = np.minimum(np.maximum(positions, starts + 4), starts + sizes - 2)
    return clipped


def strided(buffer: LogBuffer, dtype: str, size: int) -> NDArray[Any]:
    """Return *size* bytes from each position of the buffer as one number of *dtype*."""
    view: NDArray[Any] = np.ndarray((len(buffer) - size + 1,), dtype, buffer, strides=(1,))
    return view


def _ending_with(buffer: LogBuffer, ends: Int64Array, text: bytes) -> NDArray[np.bool_]:
    """Tell before which of *ends* the buffer holds *text*.

    Before each lie as many bytes of a record as *text* has, and the eight bytes before those.
    """
    words = strided(buffer, ">u8", _WORD)
    found = np.ones(len(ends), np.bool_)
    for rest in range(len(text), 0, -_WORD):
        piece = text[max(rest - _WORD, 0) : rest]
        mask = np.uint64((1 << 8 * len(piece)) - 1)
        its = words[ends - (len(text) - rest) - _WORD] & mask
        found &= its == np.uint64(int.from_bytes(piece, "big"))
    return found
