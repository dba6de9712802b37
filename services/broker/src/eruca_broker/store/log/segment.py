"""One segment of the commit log: a file of fixed length, appended to by one writer.

A segment is named after the log offset of its first byte, in 20 digits, as RocketMQ names its
mapped files. So the sorted directory listing is the log. Its length never changes. Its space is
reserved on creation, so that a full disk fails there, and not in the middle of a record. Only a
crash at that moment leaves a file that is too short; ``extend`` gives it its length.

It is written by ``pwritev`` and read through a mapping, never the other way round. A store into a
mapping cannot report a full or failing disk; it kills the process.

Crash rule: only ``flush`` makes bytes durable. ``cut_tail`` clears the bytes that a crash left
after the last valid record; otherwise a record from before the crash could follow one from after
it. It does so by writing zeros. Truncating and extending the file would lose its reserved space,
and a crash between the two would leave it short.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from eruca_broker.store.files.residency import Mapped
from eruca_chassis.files.directories import FILE_MODE, sync_directory

NAME_DIGITS: Final = 20
_IOV_MAX: Final = 1024  # buffers in one pwritev, as Linux limits it
_CHUNK_SIZE: Final = 1024 * 1024  # bytes read, or written, together
_ZEROS: Final = bytes(_CHUNK_SIZE)
WARM_SIZE_MAX: Final = 32 * _CHUNK_SIZE  # unflushed bytes of a segment that is being warmed
assert WARM_SIZE_MAX % _CHUNK_SIZE == 0, "no chunk would end where a flush is due"


class Segment:
    """An open segment; made by :meth:`create` or :meth:`open`."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.base_offset = int(path.name)  # log offset of the first byte
        self.size = size  # bytes, written or not
        self._descriptor = descriptor
        self._is_in_use = False  # … or dropped: not to be warmed any more
        self._is_warm = False  # … or warming has failed
        self._warming = threading.Lock()
        self.buffer = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        self.mapped = Mapped(str(path), self.buffer)

    @classmethod
    def create(cls, directory: Path, base_offset: int, size: int) -> Self:
        """Create the segment at *base_offset* and reserve its space.

        Raises:
            OSError: There is no room; nothing is left behind.
        """
        path = directory / f"{base_offset:0{NAME_DIGITS}d}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            os.posix_fallocate(descriptor, 0, size)
            os.fsync(descriptor)  # else a crash could lose the file's length
            sync_directory(directory)  # … or its name
            return cls(path, descriptor, size)
        except BaseException:
            os.close(descriptor)
            path.unlink()
            raise

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing segment of any length."""
        descriptor = os.open(path, os.O_RDWR)
        return cls(path, descriptor, os.fstat(descriptor).st_size)

    @property
    def end_offset(self) -> int:
        """Log offset after the last byte."""
        return self.base_offset + self.size

    def warm(self) -> None:
        """Write the whole segment for the first time, unless it is taken into use meanwhile.

        Its pages are then in memory and its blocks on disk: appending causes neither a page fault
        nor an allocation. May be called in another thread. It flushes in small steps: the kernel
        would slow down the log's own writer if a gigabyte were waiting.

        Raises:
            OSError: It is not warm; it is valid all the same.
        """
        if self._is_warm:
            return
        self._is_warm = True  # also if it fails: a failing disk is not tried again
        # With a descriptor of its own: a flush through the log's one would take its errors.
        with self.path.open("r+b", buffering=0) as file:
            for position in range(0, self.size, _CHUNK_SIZE):
                with self._warming:
                    if self._is_in_use:
                        return
                    os.pwrite(file.fileno(), _ZEROS[: self.size - position], position)
                if position % WARM_SIZE_MAX == WARM_SIZE_MAX - _CHUNK_SIZE:
                    os.fdatasync(file.fileno())

    def use(self) -> None:
        """Take the segment into use; from now on only the log itself writes to it."""
        # Set first: the warming thread may take the lock again before a waiter for it wakes.
        self._is_in_use = True
        with self._warming:
            pass  # the warming write in progress is finished

    def write(self, buffers: Sequence[memoryview], position: int) -> None:
        """Write *buffers* one after another from *position* on.

        Raises:
            OSError: Some bytes may have been written; the caller must cut the tail.
        """
        for first in range(0, len(buffers), _IOV_MAX):
            some = buffers[first : first + _IOV_MAX]
            size = sum(map(len, some))
            assert 0 <= position <= self.size - size, "a write would change the file's length"
            written = os.pwritev(self._descriptor, some, position)
            if written < size:
                self._write_rest(some, position, written)
            position += size

    def cut_tail(self, position: int) -> None:
        """Turn everything from *position* on into zeros, durably.

        Raises:
            OSError: Some of it may remain; calling again continues.
        """
        assert 0 <= position <= self.size
        while (start := _next_data(self._descriptor, position)) is not None:
            chunk = os.pread(self._descriptor, _CHUNK_SIZE, start)
            if chunk != _ZEROS[: len(chunk)]:  # rstrip alone would take seconds per segment
                used = len(chunk.rstrip(b"\0"))
                self.write([memoryview(bytes(used))], start)
            position = start + len(chunk)
        os.fdatasync(self._descriptor)

    def has_data_from(self, position: int) -> bool:
        """Tell whether there is any byte but zeros from *position* on."""
        while (start := _next_data(self._descriptor, position)) is not None:
            chunk = os.pread(self._descriptor, _CHUNK_SIZE, start)
            if chunk != _ZEROS[: len(chunk)]:
                return True
            position = start + len(chunk)
        return False

    def extend(self, size: int) -> Self:
        """Extend a file that is too short, with zeros; return the segment, opened again.

        Raises:
            OSError: There is no room.
        """
        assert size > self.size, "a segment is never cut short"
        os.posix_fallocate(self._descriptor, 0, size)
        os.fsync(self._descriptor)
        self.close()
        return type(self).open(self.path)

    def rewrite(self, start: int, end: int) -> None:
        """Write the bytes from *start* to *end* again, so that the next flush includes all of them.

        After a failed flush the kernel considers the bytes as flushed.

        Raises:
            OSError: Some bytes are not written again; nothing has changed.
        """
        for position in range(start, end, _CHUNK_SIZE):
            size = min(_CHUNK_SIZE, end - position)
            self.write([memoryview(os.pread(self._descriptor, size, position))], position)

    def flush(self) -> None:
        """Make every written byte durable.

        Raises:
            OSError: Final. The kernel may have dropped the pages that it could not write, and would
                report the next flush as a success.
        """
        os.fdatasync(self._descriptor)

    def _write_rest(self, buffers: Sequence[memoryview], position: int, written: int) -> None:
        """Write the rest of *buffers* after a short write; rare, so their bytes may be copied."""
        rest = memoryview(b"".join(buffers))
        while written < len(rest):
            written += os.pwrite(self._descriptor, rest[written:], position + written)

    def modified_at(self) -> float:
        """Return when the segment was last written, in seconds since the epoch."""
        return os.fstat(self._descriptor).st_mtime

    def close(self) -> None:
        """Close the file. The mapping is freed with its last reader."""
        self.use()
        os.close(self._descriptor)

    def let_go(self) -> None:
        """Close and unmap a deleted file; views that readers have stay valid.

        Freeing the memory of a gigabyte is slow: another thread may do it.
        """
        self.close()
        with suppress(BufferError):  # a reader has a view
            self.buffer.close()

    def delete(self) -> None:
        """Close the segment and delete its file; readers keep the views that they have."""
        self.close()
        self.path.unlink()
        sync_directory(self.path.parent)


def _next_data(descriptor: int, position: int) -> int | None:
    """Return the position of data at or after *position*; None if only zeros follow."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole up to the file's end
            return None
        raise
