"""One segment of the commit log: a file of fixed length, appended to by one writer.

A segment is named after the log offset of its first byte, in 20 digits, as RocketMQ names its
mapped files, so that the sorted directory listing is the log. Its length never changes: space is
reserved when it is made, so that a full disk is met there and not half-way through a record. Only
a crash right then leaves a file that is too short; ``extend`` gives it its length.

It is written by ``pwritev`` and read through a mapping, never the other way round: a store into a
mapping cannot report a full or failing disk, it kills the process.

Crash rule: only ``flush`` makes bytes durable. What a crash left behind the last sound record is
cut by ``cut_tail``, or a record from before the crash could follow one from after it. That writes
zeros over it and nothing else: a file cut short and made longer again would lose its reserved
space, and a crash between the two would leave it short.
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

from eruca_chassis.directories import FILE_MODE, sync_directory

NAME_DIGITS: Final = 20
_IOV_MAX: Final = 1024  # buffers in one pwritev, as Linux limits it
_CHUNK_SIZE: Final = 1024 * 1024  # bytes looked at, or written, together
_ZEROS: Final = bytes(_CHUNK_SIZE)
WARM_SIZE_MAX: Final = 32 * _CHUNK_SIZE  # bytes of a segment being warmed that wait for their flush


class Segment:
    """An open segment; made by :meth:`create` or :meth:`open`."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.base_offset = int(path.name)  # log offset of the first byte
        self.size = size  # bytes, written or not
        self._descriptor = descriptor
        self._is_in_use = False  # … or given up: not to be warmed any more
        self._is_warm = False  # … or could not be made so
        self._warming = threading.Lock()
        self.buffer = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)

    @classmethod
    def create(cls, directory: Path, base_offset: int, size: int) -> Self:
        """Make the segment at *base_offset* and reserve its space.

        Raises:
            OSError: No room; nothing is left behind.
        """
        path = directory / f"{base_offset:0{NAME_DIGITS}d}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            os.posix_fallocate(descriptor, 0, size)
            os.fsync(descriptor)  # or a crash could forget how long the file is
            sync_directory(directory)  # … or that it exists
            return cls(path, descriptor, size)
        except BaseException:
            os.close(descriptor)
            path.unlink()
            raise

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing segment, of whatever length it has."""
        descriptor = os.open(path, os.O_RDWR)
        return cls(path, descriptor, os.fstat(descriptor).st_size)

    @property
    def end_offset(self) -> int:
        """Log offset behind the last byte."""
        return self.base_offset + self.size

    def warm(self) -> None:
        """Write the segment through, the first time, unless it is taken into use meanwhile.

        Its pages are in memory then and its blocks on disk: appending meets neither a fault nor an
        allocation. May be called in another thread; it is flushed as it goes, for of a gigabyte
        that waited the kernel would make the log's own writer pay a part.

        Raises:
            OSError: It is not warm. It is sound all the same.
        """
        if self._is_warm:
            return
        self._is_warm = True  # a disk that fails is not tried again and again
        # A file of its own: flushing the log's, it would be told what the log is to be told.
        with self.path.open("r+b", buffering=0) as file:
            for position in range(0, self.size, _CHUNK_SIZE):
                with self._warming:
                    if self._is_in_use:
                        return
                    os.pwrite(file.fileno(), _ZEROS[: self.size - position], position)
                if position % WARM_SIZE_MAX == WARM_SIZE_MAX - _CHUNK_SIZE:
                    os.fdatasync(file.fileno())

    def use(self) -> None:
        """Take the segment into use; nothing but the log's own writes comes into it from now on."""
        # Said first: whoever warms takes the lock again before somebody who waits for it wakes.
        self._is_in_use = True
        with self._warming:
            pass  # what is being written of it now has been written

    def write(self, buffers: Sequence[memoryview], position: int) -> None:
        """Write *buffers* one after another from *position* on.

        Raises:
            OSError: Some bytes may have been written; the caller cuts the tail.
        """
        for first in range(0, len(buffers), _IOV_MAX):
            some = buffers[first : first + _IOV_MAX]
            size = sum(map(len, some))
            written = os.pwritev(self._descriptor, some, position)
            if written < size:
                self._write_rest(some, position, written)
            position += size

    def cut_tail(self, position: int) -> None:
        """Turn everything from *position* on into zeros, durably.

        Raises:
            OSError: Something may be left of it; calling again goes on with that.
        """
        while (start := _next_data(self._descriptor, position)) is not None:
            chunk = os.pread(self._descriptor, _CHUNK_SIZE, start)
            if chunk != _ZEROS[: len(chunk)]:  # strip alone goes byte by byte: seconds per segment
                used = len(chunk.rstrip(b"\0"))
                self.write([memoryview(bytes(used))], start)
            position = start + len(chunk)
        os.fdatasync(self._descriptor)

    def extend(self, size: int) -> Self:
        """Give a file that is too short its length, of zeros; return the segment opened anew.

        Raises:
            OSError: No room.
        """
        os.posix_fallocate(self._descriptor, 0, size)
        os.fsync(self._descriptor)
        self.close()
        return type(self).open(self.path)

    def rewrite(self, start: int, end: int) -> None:
        """Write again what lies from *start* to *end*, so that the next flush sees to all of it.

        The kernel takes for flushed what it has failed to flush.

        Raises:
            OSError: Some is not written again; nothing has changed.
        """
        for position in range(start, end, _CHUNK_SIZE):
            size = min(_CHUNK_SIZE, end - position)
            self.write([memoryview(os.pread(self._descriptor, size, position))], position)

    def flush(self) -> None:
        """Make every written byte durable.

        Raises:
            OSError: Final. The kernel may have dropped the pages it could not write, and would
                call the next flush a success.
        """
        os.fdatasync(self._descriptor)

    def _write_rest(self, buffers: Sequence[memoryview], position: int, written: int) -> None:
        """Write what one call has left of *buffers*; rare, so their bytes may be copied."""
        rest = memoryview(b"".join(buffers))
        while written < len(rest):
            written += os.pwrite(self._descriptor, rest[written:], position + written)

    def modified_at(self) -> float:
        """Return when the segment was last written, in seconds since the epoch."""
        return os.fstat(self._descriptor).st_mtime

    def close(self) -> None:
        """Close the file. The mapping goes when the last reader of it has gone."""
        self.use()
        os.close(self._descriptor)

    def let_go(self) -> None:
        """Close a file that is deleted, and unmap it; what readers have stays until they leave.

        Freeing the memory of a gigabyte takes its time: another thread may do it.
        """
        self.close()
        with suppress(BufferError):  # a reader has some of it
            self.buffer.close()

    def delete(self) -> None:
        """Close the segment and remove its file; readers of it keep what they have."""
        self.close()
        self.path.unlink()
        sync_directory(self.path.parent)


def _next_data(descriptor: int, position: int) -> int | None:
    """Return where the file has data at or after *position*; None if it holds only zeros there."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole up to the file's end
            return None
        raise
