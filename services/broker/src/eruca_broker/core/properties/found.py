"""Tag codes and key hashes of many messages at once, from their properties' text.

Only this module computes the consume queues' tag codes and the key index's hashes, both when a
message is stored and when a projection is rebuilt. So a rebuilt projection equals the one it
replaces, no matter who wrote the record and in which order its properties are.

Compiled code reads the texts (``native/properties.c``). It leaves two kinds of text to Python, one
at a time: a text that is not UTF-8, and one with more keys than there was room for. A text may have
thousands of keys, and a request many such texts.

Source: RocketMQ 5.3, ``IndexService.buildIndex``, ``MessageExtBrokerInner.tagsString2tagsCode``.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from eruca.contract.hashing import string_hash
from eruca.contract.properties import KEY_SEPARATOR
from eruca.core.messages.record_columns import Int64Array, LogBuffer, TopicColumn
from eruca_broker.core.consume_queue_entry import ENTRY_SIZE
from eruca_broker.core.native.library import (
    address_of,
    address_of_array,
    read_properties,
    read_text,
)

KEY_SIZE: Final = 8  # bytes
TABLE_ALIGNMENT: Final = 8  # bytes
KEY_DTYPE: Final = np.dtype([("hash", "=i4"), ("record", "=u4")])

_HEAD: Final = struct.Struct("=IIII")  # ``struct found``: records, keys, room for keys
_COUNTS: Final = struct.Struct("=II")  # … the part of it that changes
_RECORD: Final = struct.Struct("=qII")
_RECORD_DTYPE: Final = np.dtype([("tag_code", "=i8"), ("end", "=u4"), ("properties_size", "=u4")])
_KEY_SEPARATOR: Final = KEY_SEPARATOR.encode()
_KEYS_EACH: Final = 3  # initial room for keys of each record …
_KEYS_MORE: Final = 13  # … and additional room

assert KEY_DTYPE.itemsize == KEY_SIZE
assert _RECORD.size == _RECORD_DTYPE.itemsize

Keys = NDArray[np.void]
"""Rows of KEY_DTYPE: the hash of ``topic#key``, and the record that has it."""


class FoundProperties:
    """Values found in the properties of some records; filled by compiled functions.

    Keys are in the records' order; of each record the unique id comes first, then each of KEYS. The
    code that fills the table decides which number a record has. In front of the table there is room
    for the records' entries in their consume queue.

    Attributes:
        at: The address for compiled functions; it changes with :meth:`add`.
        size: The number of records.
    """

    __slots__ = ("_buffer", "_start", "at", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._buffer = bytearray(empty_table(size))
        self._start = _entries_room(size)  # the table's place in the buffer
        self.at = address_of(self._buffer) + self._start

    @classmethod
    def at_end(cls, buffer: bytearray, address: int, size: int) -> Self:
        """Return the table that fills the end of *buffer*: what :func:`empty_table` returned.

        Args:
            buffer: The bytes; never resized.
            address: The buffer's.
            size: The number of records.
        """
        found = cls.__new__(cls)
        found.size = size
        found._buffer = buffer
        found._start = len(buffer) - len(empty_table(size)) + _entries_room(size)
        found.at = address + found._start
        return found

    @property
    def entries_at(self) -> int:
        """Return the address of the room for entries."""
        return self.at - _entries_room(self.size)

    @property
    def entries(self) -> bytearray:
        """Return a copy of the entries that compiled functions have written."""
        at = self._start - _entries_room(self.size)
        return self._buffer[at : at + ENTRY_SIZE * self.size]

    @property
    def count(self) -> int:
        """The number of records read."""
        count: int = _COUNTS.unpack_from(self._buffer, self._start)[0]
        return count

    def start_of(self, row: int) -> int:
        """Return the start of each record, up to the first that has not been read.

        It is counted, as all places are, from the first record's start.
        """
        if not row:
            return 0
        end: int = _RECORD.unpack_from(self._buffer, self._record_at(row - 1))[1]
        return end

    @property
    def tag_codes(self) -> Int64Array:
        """Return each record's tag code; 0 without a tag."""
        codes: Int64Array = self._records["tag_code"].astype(np.int64)
        return codes

    @property
    def ends(self) -> Int64Array:
        """Return the end of each record."""
        ends: Int64Array = self._records["end"].astype(np.int64)
        return ends

    def properties_extent(self, row: int) -> tuple[int, int]:
        """Return the beginning and end of a record's properties."""
        _, end, size = _RECORD.unpack_from(self._buffer, self._record_at(row))
        return end - size, end

    @property
    def keys(self) -> bytes:
        """Return all keys, as rows of KEY_DTYPE."""
        key_count = _COUNTS.unpack_from(self._buffer, self._start)[1]
        return bytes(memoryview(self._buffer)[self._key_at(0) : self._key_at(key_count)])

    def add(self, properties: bytes, *, topic: str, record: int, end: int) -> None:
        """Read the next record, which a compiled function has left to Python.

        Args:
            properties: Its text.
            topic: Its topic.
            record: The number of the record that its keys get.
            end: Its end.
        """
        # Invalid UTF-8 ends before the next separator: decoding value by value gives the same.
        text = properties.decode("utf-8", "replace").encode()
        self._make_room(text.count(_KEY_SEPARATOR) + 2)  # one more key than blanks, and the id
        at = self._record_at(self.count)
        _RECORD.pack_into(self._buffer, at, 0, end, len(properties))
        is_read = read_text(text, len(text), prefix_hash(topic), record, self.size, self.at)
        assert is_read, properties

    def _make_room(self, more: int) -> None:
        """Make sure that *more* keys fit; afterwards there is often room for as many again."""
        _, key_count, room, _ = _HEAD.unpack_from(self._buffer, self._start)
        if key_count + more <= room:
            return
        ahead = _entries_room(self.size)
        grown = self._buffer[self._start - ahead :] + bytes(KEY_SIZE * (room + more))
        _HEAD.pack_into(grown, ahead, self.count, key_count, 2 * room + more, 0)
        self._buffer, self._start = grown, ahead
        self.at = address_of(grown) + ahead

    @property
    def _records(self) -> NDArray[np.void]:
        return np.frombuffer(self._buffer, _RECORD_DTYPE, self.size, self._record_at(0))

    def _key_at(self, number: int) -> int:
        return self._record_at(self.size) + KEY_SIZE * number

    def _record_at(self, row: int) -> int:
        return self._start + _HEAD.size + _RECORD.size * row


def empty_table(size: int) -> bytes:
    """Return the bytes of an empty table for *size* records, with the room for their entries.

    Their number is a multiple of ``TABLE_ALIGNMENT``.
    """
    return _TABLE_OF_ONE if size == 1 else _empty_table(size)


def _empty_table(size: int) -> bytes:
    room = _KEYS_EACH * size + _KEYS_MORE
    head = _HEAD.pack(0, 0, room, 0)
    return b"".join(
        (bytes(_entries_room(size)), head, bytes(_RECORD.size * size + KEY_SIZE * room))
    )


def _entries_room(size: int) -> int:
    """Return the bytes for the entries of *size* records, so that the table is aligned."""
    return -(-ENTRY_SIZE * size // TABLE_ALIGNMENT) * TABLE_ALIGNMENT


_TABLE_OF_ONE: Final = _empty_table(1)


def find_properties(
    buffer: LogBuffer, starts: Int64Array, sizes: Int64Array, topics: TopicColumn
) -> FoundProperties:
    """Return the values in properties anywhere in a buffer; keys belong to rows.

    Args:
        buffer: The bytes that contain the properties.
        starts: The beginning of each text, counted from the start of the buffer.
        sizes: Bytes of each text.
        topics: The records' topics.
    """
    found = FoundProperties(len(starts))
    prefixes = np.array([prefix_hash(name) for name in topics.names], np.uint32)[topics.numbers]
    addresses = (
        address_of_array(np.frombuffer(buffer, np.uint8), np.uint8),
        *(address_of_array(starts, np.int64), address_of_array(sizes, np.int64)),
        address_of_array(prefixes, np.uint32),
    )
    while (row := read_properties(*addresses, found.size, found.at)) < found.size:
        start = int(starts[row])
        text = bytes(memoryview(buffer)[start : start + int(sizes[row])])
        found.add(text, topic=topics.names[int(topics.numbers[row])], record=row, end=0)
    return found


@lru_cache(maxsize=4096)
def prefix_hash(topic: str) -> int:
    """Return Java's hash of the part before a key of *topic* in the index, unsigned."""
    return string_hash(f"{topic}#") & 0xFFFF_FFFF
