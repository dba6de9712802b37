"""The consume queue's entry: the place of one message in the log, and its tag's code.

Layout, big-endian, 20 bytes::

    log_offset  i64   the record's first byte, counted from the start of the log
    size        i32   bytes of the record
    tags_code   i64   hash of the tag, 0 for none; in the schedule topic the delivery time in ms

The entry of queue offset *n* is at byte 20 · *n* of the queue. The queue is divided into files of
equal size. In a queue that does not start at 0 the first file begins with *fillers*. Bytes never
written are zero, which cannot be an entry, because an entry's size is positive.

Source: RocketMQ 5.3, ``ConsumeQueue``.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

ENTRY_SIZE: Final = 20  # bytes
ENTRY: Final = struct.Struct(">qiq")
ENTRY_DTYPE: Final = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
FILLER_SIZE: Final = 0x7FFF_FFFF  # the size field of a filler; no record is that large
FILLER: Final = ENTRY.pack(0, FILLER_SIZE, 0)

assert ENTRY.size == ENTRY_DTYPE.itemsize == ENTRY_SIZE

Entries = NDArray[np.void]
"""Rows of ENTRY_DTYPE, in queue order."""


class Entry(NamedTuple):
    """One entry's fields."""

    log_offset: int
    size: int
    tags_code: int

    @property
    def log_end(self) -> int:
        """Return the log offset of the byte behind the record."""
        return self.log_offset + self.size

    @property
    def is_filler(self) -> bool:
        """Return True if this only pads the front of a queue that does not start at 0."""
        return self.size == FILLER_SIZE and self.log_offset == 0

    @property
    def is_written(self) -> bool:
        """Return True if this is an entry: unwritten bytes are zero."""
        return self.size > 0 and self.log_offset >= 0


def encode_entry(log_offset: int, size: int, tags_code: int) -> bytes:
    """Return the 20 bytes of one entry."""
    return ENTRY.pack(log_offset, size, tags_code)


def decode_entry(data: bytes | bytearray | memoryview, start: int = 0) -> Entry:
    """Return the entry at byte *start* of *data*."""
    return Entry(*ENTRY.unpack_from(data, start))


def build_entries(
    log_offsets: NDArray[np.int64],
    sizes: NDArray[np.int64],
    tags_codes: NDArray[np.int64],
) -> Entries:
    """Return the entries of equally long columns, ready to be written as they lie in memory."""
    assert len(log_offsets) == len(sizes) == len(tags_codes)  # else numpy repeats a single value
    entries: Entries = np.empty(len(log_offsets), ENTRY_DTYPE)
    entries["log_offset"] = log_offsets
    entries["size"] = sizes
    entries["tags_code"] = tags_codes
    return entries


def view_entries(data: bytes | bytearray | memoryview) -> Entries:
    """Return whole entries as rows, without copying them."""
    return np.frombuffer(data, ENTRY_DTYPE)


def log_ends(entries: Entries) -> NDArray[np.int64]:
    """Return the log offset behind each entry's record."""
    ends: NDArray[np.int64] = entries["log_offset"] + entries["size"]
    return ends


def sound_count(entries: Entries, limit: int) -> int:
    """Return the number of leading entries of a file that are valid after a crash.

    Valid are written entries in log order, with fillers only in front, of records before *limit*.
    They had been flushed up to there. Anything may follow: whole entries, holes, torn entries. A
    disk tears between sectors, which for entries of 20 bytes is at a multiple of four. So in a torn
    log offset the upper half is missing, or all of it, and it is smaller than its predecessor's.
    """
    offsets = entries["log_offset"]
    is_filler = (entries["size"] == FILLER_SIZE) & (offsets == 0)
    is_sound = is_filler | ((entries["size"] > 0) & (offsets >= 0) & (offsets < limit))
    is_sound[1:] &= offsets[1:] >= np.where(is_filler, 0, log_ends(entries))[:-1]
    return len(entries) if is_sound.all() else int(is_sound.argmin())
