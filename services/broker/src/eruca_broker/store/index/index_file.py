"""One file of the key index: a hash table from key hashes to log offsets, for writing once.

While it is being filled, its slot table is in memory and its entries are appended to the file. Once
it is full, the table is written as well (:meth:`IndexFile.seal`) and its memory freed. Nothing is
written through a mapping, where a full disk would kill the process.

Crash rule: the header is written last, after the entries that it counts have been flushed; entries
beyond its count do not exist. The slots of a file that is not full are never trusted. They are
computed from its entries, which also verifies that entries and chains fit together.

Keys are looked up by :mod:`eruca_broker.store.index.look_ups`.

Source: RocketMQ 5.3, ``IndexFile``.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final, NamedTuple

import numpy as np
import structlog
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from eruca_broker.core.index.chains import Slots, chain
from eruca_broker.core.index.layout import (
    ENTRY,
    ENTRY_SIZE,
    IndexEntry,
    IndexHeader,
    encode_entries,
    entry_position,
    file_size,
    seconds_since,
    view_entries,
)
from eruca_broker.core.offset_search import partition_point
from eruca_broker.store.files.open_files import OpenFiles
from eruca_broker.store.index import index_pages

_UNCOUNTED: Final = -1  # slots in use, until load_slots counts them

Int64Array = NDArray[np.int64]
KeyHashes = NDArray[np.int32]

_log = structlog.get_logger()


class DamagedIndexError(Exception):
    """An index file is not what was written: it and its successors must be rebuilt from the log."""


class Added(NamedTuple):
    """The result of one :meth:`IndexFile.add`, with old values for :meth:`IndexFile.take_back`."""

    header: IndexHeader  # before
    entries_crc: int  # …
    hashes: KeyHashes
    previous: NDArray[np.int32]


class IndexMark(NamedTuple):
    """Mark of an index file at a checkpoint: its content when it was flushed."""

    index_count: int  # number after its last entry
    entries_crc: int  # CRC-32 of the entries
    digest: int | None  # … of the whole file, once it is full and sealed


class IndexFile:
    """An index file; made by :meth:`create` or :meth:`load`. Used from one thread.

    Attributes:
        path: Its path.
        header: The file's own header after the next flush; it counts at most ``max_entries``.
        slots: The slot table; None if it is in the file and nothing can be added. There is one
            while a file that is written has room.
        is_flushed: Whether nothing has changed since the last flush was begun.
        digest: Of a full file, once it is known.
        entries_crc: CRC-32 of the entries, as they were put; known while the slots are.
        is_damaged: Whether a chain has been found broken.
        hash_slots: The number of its slots.
    """

    def __init__(
        self, path: str, hash_slots: int, max_entries: int, header: IndexHeader, files: OpenFiles
    ) -> None:
        self.path = path
        self.header = header
        self.slots: Slots | None = None
        self.is_flushed = True
        self.digest: int | None = None
        self.entries_crc = 0
        self.is_damaged = False
        self.hash_slots = hash_slots
        self._max_entries = max_entries
        self._open_files = files
        self._saved_header: IndexHeader | None = None  # when the slots were last written

    @property
    def name(self) -> str:
        """Its name in the directory; names sort as the files follow each other."""
        return os.path.basename(self.path)  # noqa: PTH119 - paths are strings here

    @classmethod
    def create(
        cls,
        path: str,
        *,
        hash_slots: int,
        max_entries: int,
        end_offset: int,
        end_timestamp: int,
        files: OpenFiles,
    ) -> IndexFile:
        """Create an empty index file, which continues at its predecessor's end.

        Raises:
            OSError: The disk refused; there is no file.
        """
        try:
            files.create(path, file_size(hash_slots, max_entries))
        except OSError:
            files.forget(path)
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - paths are strings here
            raise
        header = IndexHeader(end_timestamp, end_timestamp, end_offset, end_offset)
        file = cls(path, hash_slots, max_entries, header, files)
        file.slots = np.zeros(hash_slots, np.int32)  # untouched pages take no memory
        file.is_flushed = False
        return file

    @classmethod
    def load(cls, path: str, *, hash_slots: int, max_entries: int, files: OpenFiles) -> IndexFile:
        """Open an existing index file for reading; see :meth:`load_slots`.

        Raises:
            DamagedIndexError: Size, header, first and last entry do not fit together.
            FileNotFoundError: The file does not exist.
        """
        descriptor = files.descriptor(path)
        size = os.fstat(descriptor).st_size
        if size != file_size(hash_slots, max_entries):
            raise DamagedIndexError(f"{path}: its size is {size} bytes")
        header = index_pages.read_header(descriptor)
        if not 1 <= header.index_count <= max_entries:
            raise DamagedIndexError(f"{path}: its header counts {header.index_count - 1} entries")
        file = cls(path, hash_slots, max_entries, header, files)
        if header.index_count > 1:
            ends = file.entry(1).log_offset, file.entry(header.index_count - 1).log_offset
            if ends != (header.begin_offset, header.end_offset):
                raise DamagedIndexError(f"{path}: entries from {ends[0]} to {ends[1]}, {header}")
        return file

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return file_size(self.hash_slots, self._max_entries)

    @property
    def room(self) -> int:
        """The number of entries that still fit."""
        return self._max_entries - self.header.index_count

    @property
    def is_whole_on_disk(self) -> bool:
        """True if the file's own slots are up to date, as RocketMQ requires."""
        return self.slots is None or self._saved_header == self.header

    def add(self, hashes: KeyHashes, offsets: Int64Array, timestamps: Int64Array) -> Added:
        """Add entries given as columns, at least one and at most ``room``, all or none.

        Raises:
            OSError: The disk refused; nothing has changed.
        """
        assert self.slots is not None, self.path
        assert 0 < len(hashes) <= self.room, "an entry would lie behind the file's end"
        header = self.header
        previous, used = chain(self.slots, hashes, header.index_count)
        begin = header.begin_timestamp if header.index_count > 1 else timestamps.item(0)
        entries = encode_entries(hashes, offsets, timestamps, previous, begin)
        if header.index_count == 1:
            # RocketMQ counts the first entry's seconds from its predecessor's end.
            seconds = seconds_since(header.begin_timestamp, begin)
            view_entries(entries)["seconds"][0] = seconds
        added = Added(header, self.entries_crc, hashes, previous)
        self._write(memoryview(entries), added)
        self.entries_crc = crc32(memoryview(entries), self.entries_crc)
        self.header = header.grown(
            len(hashes),
            used,
            offsets=(offsets.item(0), offsets.item(-1)),
            timestamps=(begin, timestamps.item(-1)),
        )
        self.is_flushed = False
        return added

    def take_back(self, added: Added) -> None:
        """Undo the latest addition."""
        assert self.slots is not None, self.path
        added_count = self.header.index_count - added.header.index_count
        assert added_count in (0, len(added.hashes)), "something was added since"
        is_oldest = added.previous < added.header.index_count  # of those added to its slot
        slots = added.hashes[is_oldest] % self.hash_slots
        self.slots[slots] = added.previous[is_oldest]
        self.header, self.entries_crc = added.header, added.entries_crc

    def mark(self) -> IndexMark:
        """Return the mark of the file, valid once it is flushed."""
        return IndexMark(self.header.index_count, self.entries_crc, self.digest)

    def entry(self, number: int) -> IndexEntry:
        """Return entry *number*."""
        return IndexEntry(*ENTRY.unpack(self.read(number, 1)))

    def read(self, number: int, count: int) -> bytes:
        """Return *count* entries from entry *number* on, as stored in the file.

        Raises:
            DamagedIndexError: The file ends before them.
        """
        descriptor = self._open_files.descriptor(self.path)
        found = index_pages.read_entries(descriptor, self.hash_slots, number, count)
        if len(found) < count * ENTRY_SIZE:
            raise DamagedIndexError(f"{self.path}: it ends before entry {number + count - 1}")
        return found

    def newest(self, slot: int) -> int:
        """Return the number of a slot's newest entry; 0 for an empty slot."""
        slots = self.slots
        if slots is not None:
            return slots.item(slot)
        number = index_pages.read_slot(self._open_files.descriptor(self.path), slot)
        # Like RocketMQ, treat a number beyond the entries as empty.
        return number if 0 < number < self.header.index_count else 0

    def note_damage(self, fault: str) -> None:
        """Record that a chain is broken; the first one is logged."""
        if not self.is_damaged:
            self.is_damaged = True
            _log.error(
                "a file of the key index is damaged; look-ups of some keys take longer",
                file=self.path,
                fault=fault,
                fix="check the disk; stopped in order and started again, the broker rebuilds it",
            )

    def load_slots(self) -> None:
        """Compute the slot table from the entries, so that more can be added.

        Raises:
            DamagedIndexError: The entries' chains or order differ from the result.
        """
        slots = np.zeros(self.hash_slots, np.int32)
        used_slots = 0
        last_offset = -1
        entries_crc = 0
        descriptor = self._open_files.descriptor(self.path)
        for first, data in index_pages.entry_chunks(
            descriptor, self.hash_slots, self.header.index_count
        ):
            entries_crc = crc32(data, entries_crc)
            rows = view_entries(data)
            hashes = rows["key_hash"].astype(np.int32)
            offsets = rows["log_offset"].astype(np.int64)
            if hashes.min() < 0 or offsets[0] < last_offset or (np.diff(offsets) < 0).any():
                raise DamagedIndexError(f"{self.path}: entries from {first} on are out of order")
            last_offset = int(offsets[-1])
            previous, used = chain(slots, hashes, first)
            if not np.array_equal(previous, rows["previous"]):
                raise DamagedIndexError(f"{self.path}: chains from {first} on are broken")
            used_slots += used
        if self.header.used_slots == _UNCOUNTED:
            self.header = self.header._replace(used_slots=used_slots)
        elif self.header.used_slots != used_slots:
            raise DamagedIndexError(f"{self.path}: {used_slots} slots are in use, {self.header}")
        self.slots, self.entries_crc = slots, entries_crc

    def cut(self, log_offset: int) -> None:
        """Remove the entries of records at or after *log_offset*; the first entry stays.

        If any are removed, the slots must be loaded again.
        """
        header = self.header
        count = partition_point(
            2, header.index_count, lambda number: self.entry(number).log_offset < log_offset
        )
        if count == header.index_count:
            return
        last = self.entry(count - 1)
        # Precise only to the second: only the log has the milliseconds.
        seconds = last.seconds if count > 2 else 0
        self.header = header._replace(
            end_timestamp=header.begin_timestamp + seconds * 1000,
            end_offset=last.log_offset,
            used_slots=_UNCOUNTED,
            index_count=count,
        )
        self.slots = None
        self.is_flushed = False
        self.digest = None

    def save_slots(self) -> None:
        """Write the slot table into the file, if it is in memory."""
        slots = self.slots
        if slots is not None:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                index_pages.write_slots(descriptor, slots)
            finally:
                os.close(descriptor)
            self._saved_header = self.header

    def flush(self, header: IndexHeader) -> None:
        """Make *header* and the entries that it counts durable; may run in another thread."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            index_pages.flush_header(descriptor, header)
        finally:
            os.close(descriptor)

    def seal(self) -> None:
        """Make a full file durable, slots included; may run in another thread."""
        assert not self.room, "more may be added, and needs the slots in memory"
        self.save_slots()
        self.flush(self.header)
        self.digest = self.compute_digest()
        self.slots = None
        self.is_flushed = True

    def compute_digest(self) -> int:
        """Return a checksum of the file; it includes the slots only if they are final.

        They are in a full file, which must have been sealed.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return index_pages.digest_of(
                descriptor, self.header, self.hash_slots, with_slots=self.room == 0
            )
        finally:
            os.close(descriptor)

    def delete(self) -> None:
        """Delete the file."""
        self._open_files.forget(self.path)
        os.unlink(self.path)  # noqa: PTH108 - paths are strings here

    def _write(self, data: memoryview, added: Added) -> None:
        position = entry_position(self.hash_slots, added.header.index_count)
        try:
            index_pages.write_all(self._open_files.descriptor(self.path), data, position)
        except OSError:
            self.take_back(added)
            raise
