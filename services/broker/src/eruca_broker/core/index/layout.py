"""The key index's file, byte by byte.

Layout, big-endian::

    header    40 bytes                begin_timestamp  i64  ms, store time of the first entry
                                      end_timestamp    i64  ms, … of the last entry
                                      begin_offset     i64  log offset of the first entry's record
                                      end_offset       i64  … of the last entry's
                                      used_slots       i32
                                      index_count      i32  entries + 1
    slots     4 bytes · hash_slots    i32  number of the slot's newest entry, 0 for none
    entries   20 bytes · max_entries  key_hash    i32
                                      log_offset  i64
                                      seconds     i32  since begin_timestamp, from 0
                                      previous    i32  number of the slot's next older entry, or 0

Entries are numbered from 1; entry 0 is never written, so a file holds ``max_entries`` - 1. The
slot of a key is its hash modulo the number of slots.

Source: RocketMQ 5.3, ``IndexFile``, ``IndexHeader``.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eruca_broker.core.native.library import address_of, address_of_array, encode_index_entries

HEADER_SIZE: Final = 40  # bytes
SLOT_SIZE: Final = 4  # bytes
ENTRY_SIZE: Final = 20  # bytes
HASH_SLOTS: Final = 5_000_000  # RocketMQ's maxHashSlotNum
MAX_ENTRIES: Final = 20_000_000  # RocketMQ's maxIndexNum
SECONDS_MAX: Final = 0x7FFF_FFFF

HEADER: Final = struct.Struct(">qqqqii")
ENTRY: Final = struct.Struct(">iqii")
ENTRY_DTYPE: Final = np.dtype(
    [("key_hash", ">i4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
SLOT_DTYPE: Final = np.dtype(">i4")

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_NAME_FORMAT: Final = "%Y%m%d%H%M%S"
NAME_SIZE: Final = 17  # characters: year to milliseconds

assert HEADER.size == HEADER_SIZE
assert ENTRY.size == ENTRY_DTYPE.itemsize == ENTRY_SIZE
assert SLOT_DTYPE.itemsize == SLOT_SIZE
assert MAX_ENTRIES <= SECONDS_MAX, "the number of an entry is an i32"

IndexEntries = NDArray[np.void]
"""Rows of ENTRY_DTYPE, oldest first."""


class IndexHeader(NamedTuple):
    """A header's fields. An empty index file has its predecessor's end."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0  # entries are in log order: not less than begin_offset
    used_slots: int = 0  # at most one for each entry
    index_count: int = 1  # number of the next entry

    def encode(self) -> bytes:
        """Return the 40 bytes."""
        return HEADER.pack(*self)

    def grown(
        self, count: int, used: int, *, offsets: tuple[int, int], timestamps: tuple[int, int]
    ) -> IndexHeader:
        """Return the header after *count* more entries, which brought *used* more slots into use.

        Args:
            count: At least one.
            used: Number of slots that were empty before.
            offsets: Log offsets of the first and last one's records.
            timestamps: Their store times in ms.
        """
        is_first = self.index_count == 1
        assert self.end_offset <= offsets[0] <= offsets[1], "entries are in log order"
        assert 0 <= used <= count, "an entry brings at most its own slot into use"
        return IndexHeader(
            timestamps[0] if is_first else self.begin_timestamp,
            timestamps[1],
            offsets[0] if is_first else self.begin_offset,
            offsets[1],
            self.used_slots + used,
            self.index_count + count,
        )

    def overlaps(self, begin: int, end: int) -> bool:
        """Tell whether the file may contain entries stored from *begin* to *end*, both in ms."""
        first, last = self.begin_timestamp, self.end_timestamp
        # Not "begin <= last and end >= first": if the clock was set back, a file's end may be
        # before its beginning. RocketMQ then finds it only from one of the two.
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last


class IndexEntry(NamedTuple):
    """An entry's fields."""

    key_hash: int
    log_offset: int
    seconds: int
    previous: int


def decode_header(data: bytes) -> IndexHeader:
    """Return the header at the start of *data*; if the file was never written, an empty one."""
    header = IndexHeader(*HEADER.unpack_from(data))
    return header if header.index_count else header._replace(index_count=1)


def file_size(hash_slots: int, max_entries: int) -> int:
    """Return the size of an index file in bytes; it has that size from its creation on."""
    return entry_position(hash_slots, max_entries)


def slot_position(slot: int) -> int:
    """Return the byte position of a slot."""
    return HEADER_SIZE + SLOT_SIZE * slot


def entry_position(hash_slots: int, number: int) -> int:
    """Return the byte position of entry *number*."""
    return HEADER_SIZE + SLOT_SIZE * hash_slots + ENTRY_SIZE * number


def seconds_since(begin: int, timestamp: int) -> int:
    """Return the seconds field of an entry stored at *timestamp*, if its file begins at *begin*."""
    return min(max((timestamp - begin) // 1000, 0), SECONDS_MAX) if begin > 0 else 0


def encode_entries(
    hashes: NDArray[np.int32],
    log_offsets: NDArray[np.int64],
    timestamps: NDArray[np.int64],
    previous: NDArray[np.int32],
    begin: int,
) -> bytearray:
    """Return the entries of columns, at least one row; seconds count from *begin*, in ms."""
    # The compiled function reads as many rows of each column, wherever the column ends.
    assert len(hashes) == len(log_offsets) == len(timestamps) == len(previous) > 0
    entries = bytearray(ENTRY_SIZE * len(hashes))
    encode_index_entries(
        *(address_of_array(hashes, np.int32), address_of_array(log_offsets, np.int64)),
        *(address_of_array(timestamps, np.int64), address_of_array(previous, np.int32)),
        *(len(hashes), begin, address_of(entries)),
    )
    return entries


def view_entries(data: bytes | bytearray) -> IndexEntries:
    """Return whole entries as rows, without copying them."""
    return np.frombuffer(data, ENTRY_DTYPE)


def file_name(timestamp: int, after: str | None, zone: tzinfo | None) -> str:
    """Return the name of a file created at *timestamp*: its local time, to the millisecond.

    Names give the order of the files. If the clock was set back, or two files begin in the same
    millisecond, the name is the first free one behind *after*.

    Args:
        timestamp: ms since the epoch.
        after: Name of the newest existing file.
        zone: Time zone of the local time; None for the machine's.
    """
    moment = (_EPOCH + timedelta(milliseconds=timestamp)).astimezone(zone)
    name = f"{moment:{_NAME_FORMAT}}{moment.microsecond // 1000:03d}"
    if after is None or name > after:
        return name
    following = datetime.strptime(after[:-3], _NAME_FORMAT).replace(tzinfo=UTC)
    following += timedelta(milliseconds=int(after[-3:]) + 1)
    name = f"{following:{_NAME_FORMAT}}{following.microsecond // 1000:03d}"
    assert after < name, "the order of the names is the log's"
    return name


def is_file_name(name: str) -> bool:
    """Tell whether *name* could be that of an index file."""
    return len(name) == NAME_SIZE and name.isdecimal()
