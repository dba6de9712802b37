"""The files of one consume queue, read and written as one row of entries.

A file is named after the byte offset of its first entry, in 20 digits. From its creation on it is
exactly ``entries_per_file`` entries long, and sparse: RocketMQ refuses any other length. It is
written with pwrite and never through a mapping, where a full disk would kill the process.

This module does not interpret entries; :mod:`eruca_broker.store.queues.consume_queue` does.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Final

from isal.isal_zlib import crc32

from eruca_broker.core.consume_queue_entry import ENTRY_SIZE
from eruca_broker.store.files.open_files import OpenFiles
from eruca_broker.store.files.residency import pread
from eruca_broker.store.files.unflushed import Unflushed
from eruca_broker.store.queues.held_entries import HeldEntries
from eruca_chassis.files.directories import DIRECTORY_MODE

_NAME_SIZE = 20  # digits
_PROVED_COUNT: Final = 65_536  # entries per read when a whole file is verified


class DamagedQueueError(Exception):
    """A queue's files are not what was written: delete them and rebuild them from the log."""


class MisplacedRecordError(DamagedQueueError):
    """A record does not follow its queue's last entry: one of the two is damaged."""

    def __init__(self, detail: str, log_offset: int) -> None:
        super().__init__(detail)
        self.log_offset = log_offset  # the record's


class QueueFiles:
    """The files of the queue in *directory*, which is created with the first file.

    ``first`` and ``last`` are file numbers: file *n* begins with offset ``n * entries_per_file``.
    All files between them exist, or their entries are held in memory.
    """

    __slots__ = (
        "_expected",
        "_expected_end",
        "_held",
        "_held_from",
        "_holding",
        "_open_files",
        "_path",
        "_path_number",
        "_unflushed",
        "directory",
        "entries_per_file",
        "first",
        "last",
    )

    def __init__(
        self,
        directory: str,
        entries_per_file: int,
        open_files: OpenFiles,
        unflushed: Unflushed,
        holding: HeldEntries | None = None,
    ) -> None:
        self.directory = directory
        self.entries_per_file = entries_per_file
        self.first = 0
        self.last = -1  # less than first: there is no file
        self._open_files = open_files
        self._unflushed = unflushed
        self._holding = holding or HeldEntries()
        self._expected: dict[int, int] = {}  # CRC-32 by number, of files unread since a crash
        self._expected_end = 0  # queue offset after the entries in those CRCs
        self._held: bytearray | None = None  # entries that are in no file yet
        self._held_from = 0  # queue offset of the first of them
        self._path_number = -2  # no file has this number
        self._path = ""

    @property
    def file_size(self) -> int:
        """Bytes of each file."""
        return self.entries_per_file * ENTRY_SIZE

    def path(self, number: int) -> str:
        """Return the path of file *number*."""
        if number != self._path_number:
            self._path = f"{self.directory}/{number * self.file_size:020d}"
            self._path_number = number
        return self._path

    def discover(self) -> None:
        """Find the existing files.

        A last file that is too short was being created when the process or machine stopped: it is
        extended, and the missing part reads as zero.

        Raises:
            DamagedQueueError: A file is missing, not ours, or of another length.
        """
        try:
            with os.scandir(self.directory) as listing:
                sizes = {entry.name: entry.stat().st_size for entry in listing}
        except FileNotFoundError:
            sizes = {}
        numbers = sorted(self._number(name) for name in sizes)
        self.first, self.last = 0, -1
        if not numbers:
            return
        first, last = numbers[0], numbers[-1]
        if last - first + 1 != len(numbers):
            raise DamagedQueueError(f"{self.directory}: a file is missing among {len(numbers)}")
        for number, (name, size) in zip(numbers, sorted(sizes.items()), strict=True):
            if size > self.file_size or (size < self.file_size and number != last):
                raise DamagedQueueError(
                    f"{self.directory}/{name}: expected {self.file_size} bytes, found {size}"
                )
        self.first, self.last = first, last
        if sizes[f"{last * self.file_size:020d}"] < self.file_size:
            self._lengthen(self.path(last))

    def expect(self, crcs: dict[int, int], end: int) -> None:
        """Require that files have these CRCs for their entries up to queue offset *end*."""
        self._expected, self._expected_end = crcs, end

    def prove(self, number: int) -> None:
        """Compare a file with its expected CRC, if any.

        Raises:
            DamagedQueueError: It differs.
        """
        if number not in self._expected:
            return
        first = number * self.entries_per_file
        count = min(self.entries_per_file, self._expected_end - first)
        crc = 0
        for index in range(0, count, _PROVED_COUNT):
            crc = crc32(self._read_raw(number, index, min(_PROVED_COUNT, count - index)), crc)
        if crc != self._expected[number]:
            raise DamagedQueueError(f"{self.path(number)}: entries have changed")
        del self._expected[number]

    def read(self, queue_offset: int, count: int) -> bytes:
        """Return the bytes of *count* entries, all of which are in existing files or held."""
        if self._held is not None and queue_offset + count > self._held_from:
            in_files = max(self._held_from - queue_offset, 0)
            found = self._read_files(queue_offset, in_files) if in_files else b""
            first = (queue_offset + in_files - self._held_from) * ENTRY_SIZE
            return found + bytes(self._held[first : first + (count - in_files) * ENTRY_SIZE])
        return self._read_files(queue_offset, count)

    def _read_files(self, queue_offset: int, count: int) -> bytes:
        number, index = divmod(queue_offset, self.entries_per_file)
        if index + count <= self.entries_per_file:
            return self._read(number, index, count)
        parts = []
        while count:
            size = min(count, self.entries_per_file - index)
            parts.append(self._read(number, index, size))
            number, index, count = number + 1, 0, count - size
        return b"".join(parts)

    def write(self, queue_offset: int, data: memoryview) -> int:
        """Write as many of the entries in *data* as fit into one file; return their number.

        During a start, entries that a full disk refuses are held in memory.

        Raises:
            OSError: Not one whole entry could be written.
        """
        if self._held is not None:
            self._hold(queue_offset, data)
            return len(data) // ENTRY_SIZE
        try:
            return self._write(queue_offset, data)
        except OSError as error:
            if not self._holding.takes(error):
                raise
            self._held, self._held_from = bytearray(), queue_offset
            self._holding.note(self.directory, self, error)
            self._hold(queue_offset, data)
            return len(data) // ENTRY_SIZE

    def settle(self) -> None:
        """Write the entries that are held in memory.

        Raises:
            OSError: The disk still refuses them; calling again continues.
        """
        if self._held is None:
            if self.first <= self.last:
                self._lengthen(self.path(self.last))
            return
        # As if they had never been held: files created for them are collected again.
        number = (self._held_from - 1) // self.entries_per_file if self._held_from else -1
        while self.last > number and not os.path.exists(self.path(self.last)):  # noqa: PTH110
            self.last -= 1
        offset, rest = self._held_from, memoryview(bytes(self._held))
        if rest and self.first <= self.last:
            self._lengthen(self.path(self.last))
        while rest:
            count = self._write(offset, rest)
            offset, rest = offset + count, rest[count * ENTRY_SIZE :]
        self._held = None

    def _hold(self, queue_offset: int, data: memoryview) -> None:
        assert self._held is not None
        position = (queue_offset - self._held_from) * ENTRY_SIZE
        assert 0 <= position <= len(self._held), (queue_offset, self._held_from)
        self._held[position:] = data
        last = (queue_offset + len(data) // ENTRY_SIZE - 1) // self.entries_per_file
        if self.last < self.first:
            self.first = queue_offset // self.entries_per_file
        self.last = max(self.last, last)

    def _write(self, queue_offset: int, data: memoryview) -> int:
        number, index = divmod(queue_offset, self.entries_per_file)
        path = self.path(number)
        descriptor = (
            self._open_files.descriptor(path)
            if self.first <= number <= self.last
            else self._create(number)
        )
        self._unflushed.files.add(path)
        room = (self.entries_per_file - index) * ENTRY_SIZE
        count = os.pwrite(descriptor, data[:room], index * ENTRY_SIZE) // ENTRY_SIZE
        if not count:
            raise OSError(errno.ENOSPC, "no room for a whole entry", path)
        return count

    def cut(self, queue_offset: int) -> None:
        """Remove the entries from *queue_offset* on; delete a file that is left without entries.

        The removed part reads as zero, so that a later recovery cannot take it for entries.
        """
        if self._held is not None and queue_offset >= self._held_from:
            del self._held[(queue_offset - self._held_from) * ENTRY_SIZE :]
            return
        self._held = None
        while self.last >= self.first and self.last * self.entries_per_file >= queue_offset:
            self._delete(self.last)
            self.last -= 1
        if self.last >= self.first:
            path = self.path(self.last)
            index = queue_offset - self.last * self.entries_per_file
            if index < self.entries_per_file:
                descriptor = self._open_files.descriptor(path)
                os.ftruncate(descriptor, index * ENTRY_SIZE)
                self._lengthen(path)
                self._unflushed.files.add(path)

    def delete_before(self, number: int) -> int:
        """Delete the files before file *number*, but never the last one; return their number."""
        before = self.first
        while self.first < min(number, self.last):
            self._delete(self.first)
            self.first += 1
        expired = self.first * self.entries_per_file - self._held_from
        if self._held is not None and expired > 0:  # else they were written to deleted files
            del self._held[: expired * ENTRY_SIZE]
            self._held_from += expired
        return self.first - before

    def _lengthen(self, path: str) -> None:
        """Extend a file to its length; on a full disk a start leaves that to the next write."""
        try:
            os.truncate(path, self.file_size)
        except OSError as error:
            if not self._holding.takes(error):
                raise
            self._holding.note(self.directory, self, error)

    def _number(self, name: str) -> int:
        number, rest = divmod(int(name), self.file_size) if name.isdecimal() else (0, 1)
        if rest or len(name) != _NAME_SIZE:
            raise DamagedQueueError(f"{self.directory}/{name} is not a file of a consume queue")
        return number

    def _read(self, number: int, index: int, count: int) -> bytes:
        if number in self._expected:
            self.prove(number)
        return self._read_raw(number, index, count)

    def _read_raw(self, number: int, index: int, count: int) -> bytes:
        descriptor = self._open_files.descriptor(self.path(number))
        data = pread(descriptor, count * ENTRY_SIZE, index * ENTRY_SIZE)
        if len(data) < count * ENTRY_SIZE:
            raise DamagedQueueError(f"{self.path(number)}: ends before its entries do")
        return data

    def _create(self, number: int) -> int:
        assert self.last < self.first or number == self.last + 1, "a file between is missing"
        path = self.path(number)
        try:
            descriptor = self._open_files.create(path, self.file_size)
        except FileNotFoundError:
            # Names become durable with their directory, and so on up to the store's own.
            os.makedirs(self.directory, DIRECTORY_MODE, exist_ok=True)  # noqa: PTH103 - paths are strings here
            topic_directory = os.path.dirname(self.directory)  # noqa: PTH120
            self._unflushed.directories.add(topic_directory)
            self._unflushed.directories.add(os.path.dirname(topic_directory))  # noqa: PTH120
            descriptor = self._open_files.create(path, self.file_size)
        self._unflushed.directories.add(self.directory)
        if self.last < self.first:
            self.first = number
        self.last = number
        return descriptor

    def _delete(self, number: int) -> None:
        path = self.path(number)
        self._open_files.forget(path)
        with suppress(FileNotFoundError):  # held entries may have no file
            os.unlink(path)  # noqa: PTH108 - paths are strings here
        self._unflushed.files.discard(path)
        self._unflushed.directories.add(self.directory)
