"""The files of one consume queue, read and written as one row of entries.

A file is named after the byte offset of its first entry, in 20 digits, and is exactly
``entries_per_file`` entries long from its creation on, sparse: RocketMQ refuses any other length.
Written with pwrite and never through a mapping, because a full disk would end the process there.

Nothing here knows what an entry means; :mod:`eruca_broker.store.queues.consume_queue` does.
"""

from __future__ import annotations

import errno
import os

from eruca_broker.core.consume_queue_entry import ENTRY_SIZE
from eruca_broker.store.files.open_files import OpenFiles
from eruca_broker.store.files.unflushed import Unflushed
from eruca_chassis.directories import DIRECTORY_MODE

_NAME_SIZE = 20  # digits


class DamagedQueueError(Exception):
    """A queue's files are not what was written: delete them and rebuild them from the log."""


class MisplacedRecordError(DamagedQueueError):
    """A record does not follow on its queue's last entry: one of the two is damaged."""

    def __init__(self, detail: str, log_offset: int) -> None:
        super().__init__(detail)
        self.log_offset = log_offset  # the record's


class QueueFiles:
    """The files of the queue in *directory*, which is created with the first of them.

    ``first`` and ``last`` number them: file *n* begins with queue offset ``n * entries_per_file``.
    """

    __slots__ = (
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
        self, directory: str, entries_per_file: int, open_files: OpenFiles, unflushed: Unflushed
    ) -> None:
        self.directory = directory
        self.entries_per_file = entries_per_file
        self.first = 0
        self.last = -1  # below first: there is no file
        self._open_files = open_files
        self._unflushed = unflushed
        self._path_number = -2  # no file has it
        self._path = ""

    @property
    def file_size(self) -> int:
        """Bytes of each file."""
        return self.entries_per_file * ENTRY_SIZE

    def path(self, number: int) -> str:
        """Return where file *number* lies."""
        if number != self._path_number:
            self._path = f"{self.directory}/{number * self.file_size:020d}"
            self._path_number = number
        return self._path

    def discover(self) -> None:
        """Find the files there are.

        A last file that is too short was being created when the process or machine stopped: its
        length is mended, and what it lacks reads as zero.

        Raises:
            DamagedQueueError: A file is missing, foreign, or of another length.
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
                    f"{self.directory}/{name}: {size} bytes instead of {self.file_size}"
                )
        self.first, self.last = first, last
        if sizes[f"{last * self.file_size:020d}"] < self.file_size:
            os.truncate(self.path(last), self.file_size)

    def read(self, queue_offset: int, count: int) -> bytes:
        """Return the bytes of *count* entries, all of which lie in existing files."""
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
        """Write as many of the entries in *data* as one file takes; return how many.

        Raises:
            OSError: Not one whole entry could be written.
        """
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
        """Remove the entries from *queue_offset* on; a file left with none goes altogether.

        What was there reads as zero, so that a later recovery cannot take it for entries.
        """
        while self.last >= self.first and self.last * self.entries_per_file >= queue_offset:
            self._delete(self.last)
            self.last -= 1
        if self.last >= self.first:
            path = self.path(self.last)
            index = queue_offset - self.last * self.entries_per_file
            if index < self.entries_per_file:
                descriptor = self._open_files.descriptor(path)
                os.ftruncate(descriptor, index * ENTRY_SIZE)
                os.ftruncate(descriptor, self.file_size)
                self._unflushed.files.add(path)

    def delete_before(self, number: int) -> int:
        """Delete the files before file *number*, but never the last one; return how many."""
        before = self.first
        while self.first < min(number, self.last):
            self._delete(self.first)
            self.first += 1
        return self.first - before

    def _number(self, name: str) -> int:
        number, rest = divmod(int(name), self.file_size) if name.isdecimal() else (0, 1)
        if rest or len(name) != _NAME_SIZE:
            raise DamagedQueueError(f"{self.directory}/{name} is no file of a consume queue")
        return number

    def _read(self, number: int, index: int, count: int) -> bytes:
        descriptor = self._open_files.descriptor(self.path(number))
        data = os.pread(descriptor, count * ENTRY_SIZE, index * ENTRY_SIZE)
        if len(data) < count * ENTRY_SIZE:
            raise DamagedQueueError(f"{self.path(number)}: ends before its entries do")
        return data

    def _create(self, number: int) -> int:
        path = self.path(number)
        try:
            descriptor = self._open_files.create(path, self.file_size)
        except FileNotFoundError:
            # Names become durable with the directory they stand in, up to the store's own.
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
        os.unlink(path)  # noqa: PTH108 - paths are strings here
        self._unflushed.files.discard(path)
        self._unflushed.directories.add(self.directory)
