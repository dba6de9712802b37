"""One file of the key index: a hash table from key hashes to log offsets, for writing once.

While it is being filled its slot table is in memory and its entries go to the file as they come;
once it is full the table is written as well (:meth:`IndexFile.seal`) and its memory given back.
Nothing is written through a mapping, because a full disk would end the process there.

Crash rule: the header is written last, after the entries it counts have been flushed, so entries
beyond it do not exist. The slots of a file that is not full are never believed: they are computed
from its entries, which also proves that entries and chains fit together.

Damage rule: a full file may rot on the disk while it is used. Where a slot's chain turns out to be
broken, the entries themselves are searched instead, which takes longer and finds the same.

Source: RocketMQ 5.3, ``IndexFile``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

from eruca_broker.core.index.chains import Slots, chain
from eruca_broker.core.index.layout import (
    ENTRY,
    ENTRY_DTYPE,
    ENTRY_SIZE,
    IndexEntries,
    IndexEntry,
    IndexHeader,
    all_seconds_since,
    entry_position,
    file_size,
    seconds_since,
)
from eruca_broker.core.offset_search import partition_point
from eruca_broker.store.files.open_files import OpenFiles
from eruca_broker.store.index import index_pages

_BLOCK_COUNT: Final = 204  # entries read with one that is wanted: 4 KiB cost hardly more than 20 B
_SEARCH_COUNT: Final = 1 << 18  # entries searched at a time where no chain leads: 5 MiB
_PASSED_COUNT: Final = 2_048  # entries of a chain whose walk costs what searching those does
_UNCOUNTED: Final = -1  # slots in use, where load_slots has yet to count them

Int64Array = NDArray[np.int64]
KeyHashes = NDArray[np.int64] | NDArray[np.int32]

_log = structlog.get_logger()


class DamagedIndexError(Exception):
    """An index file is not what was written: it and its successors must be rebuilt from the log."""


class Added(NamedTuple):
    """What one call added, for :meth:`IndexFile.take_back`."""

    header: IndexHeader  # before
    keys: Sequence[int] | Int64Array  # the entries' slots
    previous: Sequence[int] | NDArray[np.int32]


class _Searched(NamedTuple):
    """A stretch of a file's entries, and which of them have a hash."""

    first: int  # number of the first one
    block: bytes  # the entries
    rows: list[int]  # that have it, counted from the first, newest first


class IndexFile:
    """An index file; made by :meth:`create` or :meth:`load`. Used from one thread.

    Attributes:
        path: Where it lies.
        header: What the file's own header will be after the next flush.
        slots: The slot table; None where it is in the file and nothing can be added.
        is_flushed: Whether nothing has changed since the last flush was begun.
        digest: Of a full file, once it is known.
        is_damaged: Whether a chain has been found broken.
    """

    def __init__(
        self, path: str, hash_slots: int, max_entries: int, header: IndexHeader, files: OpenFiles
    ) -> None:
        self.path = path
        self.header = header
        self.slots: Slots | None = None
        self.is_flushed = True
        self.digest: int | None = None
        self.is_damaged = False
        self._hash_slots = hash_slots
        self._max_entries = max_entries
        self._open_files = files
        self._saved_header: IndexHeader | None = None  # when the slots were last written

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
        """Create an empty index file, which carries on its predecessor's end.

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
        file.slots = np.zeros(hash_slots, np.int32)  # takes memory only where it is touched
        file.is_flushed = False
        return file

    @classmethod
    def load(cls, path: str, *, hash_slots: int, max_entries: int, files: OpenFiles) -> IndexFile:
        """Open an index file that is there, for reading; see :meth:`load_slots`.

        Raises:
            DamagedIndexError: Size, header, first and last entry do not fit together.
            FileNotFoundError: There is no such file.
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
    def room(self) -> int:
        """How many entries still fit."""
        return self._max_entries - self.header.index_count

    @property
    def is_whole_on_disk(self) -> bool:
        """Whether the file's own slots are up to date, as RocketMQ wants them."""
        return self.slots is None or self._saved_header == self.header

    def add_many(self, hashes: KeyHashes, offsets: Int64Array, timestamps: Int64Array) -> Added:
        """Add entries given as columns, at least one and at most ``room``, all or none.

        Raises:
            OSError: The disk refused; nothing has changed.
        """
        assert self.slots is not None, self.path
        header = self.header
        keys = (hashes.astype(np.uint32) % np.uint32(self._hash_slots)).astype(np.int64)
        previous, used = chain(self.slots, keys, header.index_count)
        begin = header.begin_timestamp if header.index_count > 1 else int(timestamps[0])
        rows: IndexEntries = np.empty(len(hashes), ENTRY_DTYPE)
        rows["key_hash"] = hashes
        rows["log_offset"] = offsets
        rows["seconds"] = all_seconds_since(begin, timestamps)
        if header.index_count == 1:
            # RocketMQ counts the first entry's seconds from its predecessor's end.
            rows["seconds"][0] = seconds_since(header.begin_timestamp, begin)
        rows["previous"] = previous
        added = Added(header, keys, previous)
        self._write(memoryview(rows.view(np.uint8)), added)  # type: ignore[arg-type] # numpy's stub lacks Buffer
        self.header = header.grown(
            len(rows),
            used,
            offsets=(int(offsets[0]), int(offsets[-1])),
            timestamps=(begin, int(timestamps[-1])),
        )
        self.is_flushed = False
        return added

    def add_few(
        self, hashes: Sequence[int], offsets: Sequence[int], timestamps: Sequence[int]
    ) -> Added:
        """Like :meth:`add_many`; faster for a handful."""
        slots = self.slots
        assert slots is not None, self.path
        header = self.header
        begin = header.begin_timestamp if header.index_count > 1 else timestamps[0]
        counted_from = header.begin_timestamp  # see add_many
        keys, previous, packed = [], [], []
        for number, (key_hash, offset, timestamp) in enumerate(
            zip(hashes, offsets, timestamps, strict=True), header.index_count
        ):
            key = key_hash % self._hash_slots
            older = slots.item(key)
            slots[key] = number
            seconds = seconds_since(counted_from, timestamp)
            counted_from = begin
            keys.append(key)
            previous.append(older)
            packed.append(ENTRY.pack(key_hash, offset, seconds, older))
        added = Added(header, keys, previous)
        self._write(memoryview(b"".join(packed)), added)
        self.header = header.grown(
            len(keys),
            previous.count(0),
            offsets=(offsets[0], offsets[-1]),
            timestamps=(begin, timestamps[-1]),
        )
        self.is_flushed = False
        return added

    def take_back(self, added: Added) -> None:
        """Undo the latest addition."""
        assert self.slots is not None, self.path
        keys, previous = np.asarray(added.keys), np.asarray(added.previous)
        is_oldest = previous < added.header.index_count  # of those added to its slot
        self.slots[keys[is_oldest]] = previous[is_oldest]
        self.header = added.header

    def entry(self, number: int) -> IndexEntry:
        """Return entry *number*."""
        return IndexEntry(*ENTRY.unpack(self._read(number, 1)))

    def select(self, key_hash: int, count: int, begin: int, end: int) -> list[int]:
        """Return up to *count* log offsets by RocketMQ's rule, newest first.

        The time of an entry is the file's begin plus whole seconds; the search ends at the first
        entry of the slot that is older than *begin*.
        """
        found: list[int] = []
        if count <= 0:
            return found
        for _, entry in self._walk(key_hash, self.header.index_count):
            stored_at = self.header.begin_timestamp + entry.seconds * 1000
            if entry.key_hash == key_hash and begin <= stored_at <= end:
                found.append(entry.log_offset)
            if stored_at < begin or len(found) == count:
                break
        return found

    def candidates(self, key_hash: int, begin: int, end: int) -> Iterator[int]:
        """Yield the log offset of every record that may have the key, newest first.

        None that was stored from *begin* to *end* is left out, but others may come along: the
        index knows hashes, and time only to the second; of its first entry not even that.
        """
        for number, entry in self._walk(key_hash, self._end_of(end)):
            stored_from = self.header.begin_timestamp + entry.seconds * 1000
            if number > 1 and stored_from + 999 < begin:
                return
            if entry.key_hash == key_hash and (number == 1 or stored_from <= end):
                yield entry.log_offset

    def load_slots(self) -> None:
        """Compute the slot table from the entries, so that more can be added.

        Raises:
            DamagedIndexError: The entries' chains or order are not what this gives.
        """
        slots = np.zeros(self._hash_slots, np.int32)
        used_slots = 0
        last_offset = -1
        descriptor = self._open_files.descriptor(self.path)
        for first, data in index_pages.entry_chunks(
            descriptor, self._hash_slots, self.header.index_count
        ):
            rows = np.frombuffer(data, ENTRY_DTYPE)
            hashes = rows["key_hash"].astype(np.int64)
            offsets = rows["log_offset"].astype(np.int64)
            if hashes.min() < 0 or offsets[0] < last_offset or (np.diff(offsets) < 0).any():
                raise DamagedIndexError(f"{self.path}: entries from {first} on are out of order")
            last_offset = int(offsets[-1])
            previous, used = chain(slots, hashes % self._hash_slots, first)
            if not np.array_equal(previous, rows["previous"]):
                raise DamagedIndexError(f"{self.path}: chains from {first} on are broken")
            used_slots += used
        if self.header.used_slots == _UNCOUNTED:
            self.header = self.header._replace(used_slots=used_slots)
        elif self.header.used_slots != used_slots:
            raise DamagedIndexError(f"{self.path}: {used_slots} slots are in use, {self.header}")
        self.slots = slots

    def cut(self, log_offset: int) -> None:
        """Remove the entries of records at or behind *log_offset*; the first one stays.

        If any are removed, the slots must be loaded anew.
        """
        header = self.header
        count = partition_point(
            2, header.index_count, lambda number: self.entry(number).log_offset < log_offset
        )
        if count == header.index_count:
            return
        last = self.entry(count - 1)
        # To the second only: what the milliseconds were is in the log.
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
        """Make the entries that *header* counts durable, and it; may run in another thread."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            index_pages.flush_header(descriptor, header)
        finally:
            os.close(descriptor)

    def seal(self) -> None:
        """Make a full file durable, slots included; may run in another thread."""
        self.save_slots()
        self.flush(self.header)
        self.digest = self.compute_digest()
        self.slots = None
        self.is_flushed = True

    def compute_digest(self) -> int:
        """Return a checksum of the file; of its slots only if it is full, for then they are final.

        A full file must have been sealed.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return index_pages.digest_of(
                descriptor, self.header, self._hash_slots, with_slots=self.room == 0
            )
        finally:
            os.close(descriptor)

    def delete(self) -> None:
        """Delete the file."""
        self._open_files.forget(self.path)
        os.unlink(self.path)  # noqa: PTH108 - paths are strings here

    def _end_of(self, time: int) -> int:
        """Return the number behind the last entry stored at *time* or before, as seconds tell."""
        header = self.header
        if header.end_timestamp <= time:
            return header.index_count
        seconds = (time - header.begin_timestamp) // 1000
        return partition_point(
            2, header.index_count, lambda number: self.entry(number).seconds <= seconds
        )

    def _walk(self, key_hash: int, end: int) -> Iterator[tuple[int, IndexEntry]]:
        """Yield number and entry of all in the hash's slot before entry *end*, newest first.

        They may have any hash; behind a break of the slot's chain, and before it has been followed
        up to *end*, it is all entries of that hash.

        A chain leads to *end* only through all that is newer, which may be many. So they are passed
        in turns with a search from *end* on down for the first entry of the hash: whichever gets
        there first, it costs at most twice what it alone would have cost.
        """
        slot = key_hash % self._hash_slots
        number, newer = self._newest(slot), self.header.index_count
        passed, searched = 0, self._blocks_with(key_hash, end)
        low = high = 0
        block = b""
        while number:
            entry = None
            if 0 < number < newer:
                if not low <= number < high:
                    low, high = max(number - _BLOCK_COUNT + 1, 0), number + 1
                    block = self._read(low, high - low)
                entry = IndexEntry(*ENTRY.unpack_from(block, (number - low) * ENTRY_SIZE))
            if entry is None or entry.key_hash % self._hash_slots != slot:
                self._note_damage(f"in slot {slot}, behind entry {newer} comes {number}")
                yield from self._search(key_hash, min(newer, end))
                return
            number, newer = entry.previous, number
            if newer < end:
                yield newer, entry
                continue
            passed += 1
            if passed % _PASSED_COUNT == 0:
                found = next(searched)
                if found.rows:
                    number, newer = found.first + found.rows[0], end
                elif found.first == 1:  # there is none
                    return

    def _search(self, key_hash: int, end: int) -> Iterator[tuple[int, IndexEntry]]:
        """Yield number and entry of all of that hash before entry *end*, newest first."""
        for first, block, rows in self._blocks_with(key_hash, end):
            for row in rows:
                yield first + row, IndexEntry(*ENTRY.unpack_from(block, row * ENTRY_SIZE))

    def _blocks_with(self, key_hash: int, end: int) -> Iterator[_Searched]:
        """Yield stretches of the entries before entry *end*, the newest first."""
        for last in range(end, 1, -_SEARCH_COUNT):
            first = max(last - _SEARCH_COUNT, 1)
            block = self._read(first, last - first)
            hashes = np.frombuffer(block, ENTRY_DTYPE)["key_hash"]
            yield _Searched(first, block, np.flatnonzero(hashes == key_hash)[::-1].tolist())

    def _note_damage(self, fault: str) -> None:
        if not self.is_damaged:
            self.is_damaged = True
            _log.error(
                "a file of the key index is damaged; look-ups of some keys take longer",
                file=self.path,
                fault=fault,
                fix="check the disk; stopped in order and started again, the broker rebuilds it",
            )

    def _newest(self, slot: int) -> int:
        slots = self.slots
        if slots is not None:
            return slots.item(slot)
        number = index_pages.read_slot(self._open_files.descriptor(self.path), slot)
        return (
            number if 0 < number < self.header.index_count else 0
        )  # RocketMQ, too, takes it for empty

    def _read(self, number: int, count: int) -> bytes:
        descriptor = self._open_files.descriptor(self.path)
        found = index_pages.read_entries(descriptor, self._hash_slots, number, count)
        if len(found) < count * ENTRY_SIZE:
            raise DamagedIndexError(f"{self.path}: it ends before entry {number + count - 1}")
        return found

    def _write(self, data: memoryview, added: Added) -> None:
        position = entry_position(self._hash_slots, added.header.index_count)
        try:
            index_pages.write_all(self._open_files.descriptor(self.path), data, position)
        except OSError:
            self.take_back(added)
            raise
