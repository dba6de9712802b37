"""The files of a restored store: segments of the log, and the checkpoint that promises them.

The formats are RocketMQ's, as the broker's are. A segment is a file of fixed length, named after
its first log offset in 20 digits. A blank record fills what records leave of it. The file
``checkpoint`` says how far the log is durable: so a broker that finds damage before that place
refuses to start, instead of taking it for a torn end. Nothing else of a store is restored: a broker
rebuilds it from the log.

Crash rule: the log gets its name last. Until then the directory has only ``commitlog.unfinished``,
with which no broker starts.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from eruca.contract.errors import ConflictError
from eruca.contract.records import encode_blank
from eruca.objects.durable_files import make_durable
from eruca.objects.folders import named_errors

LOG_NAME: Final = "commitlog"
UNFINISHED_NAME: Final = "commitlog.unfinished"
LOCK_NAME: Final = "lock"
CHECKPOINT_NAME: Final = "checkpoint"
CHECKPOINT_SIZE: Final = 4096  # bytes
_CHECKPOINT: Final = struct.Struct(">5q")  # three times in ms, projected and flushed log offset
_CHECKSUM: Final = struct.Struct(">q")
_LEFT: Final = frozenset((UNFINISHED_NAME, LOCK_NAME, CHECKPOINT_NAME))  # by a killed restore
_DIRECTORY_MODE: Final = 0o750
_FILE_MODE: Final = 0o640
_FIX: Final = "restore into an empty directory, and let the broker use it then"
_FLOCK: Final = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, process id


class RestoredStore:
    """A store directory that is being written; a context manager, which holds the store's lock.

    Args:
        directory: Missing or empty, but for what a killed restore has left.

    Raises:
        ConflictError: There is something else in it, or another process has it open.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            directory.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
        except FileExistsError:
            raise ConflictError(f"{directory} is not a directory", fix=_FIX) from None
        _check_empty(directory)
        self._lock = _locked(directory)
        try:
            _check_empty(directory)  # another restore may have completed meanwhile
        except ConflictError:
            os.close(self._lock)
            raise
        self._log = directory / UNFINISHED_NAME
        self._base: int | None = None  # log offset of the segment that is being written
        self._file: BinaryIO | None = None
        if self._log.exists():
            shutil.rmtree(self._log)
        self._log.mkdir(_DIRECTORY_MODE)

    def __enter__(self) -> RestoredStore:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:  # it is not complete, and its last bytes are wanted no more
            with suppress(OSError):
                self._file.close()
        if self._log.exists():
            shutil.rmtree(self._log)
            (self.directory / CHECKPOINT_NAME).unlink(missing_ok=True)
        os.close(self._lock)

    def write(self, log_offset: int, data: bytes) -> None:
        """Write records at a log offset: where the last ones ended, or a segment begins."""
        if self._file is None:
            self._base = log_offset
            path = self._log / f"{log_offset:020d}"
            self._file = os.fdopen(
                os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE_MODE), "r+b"
            )
        assert self._base is not None
        with named_errors(self._log):
            self._file.seek(log_offset - self._base)
            self._file.write(data)

    def fill(self, log_offset: int, end: int) -> None:
        """End the segment at *end*, by a blank record at *log_offset*."""
        self.write(log_offset, encode_blank(end - log_offset))
        self._finish(end)

    def complete(self, end_offset: int, stored_ms: int, segment_bytes: int) -> None:
        """Make everything durable, and give the log its name.

        Args:
            end_offset: Log offset after the last record.
            stored_ms: Store time of the last record, in ms.
            segment_bytes: Length of the last segment, if no blank record ends it.
        """
        if self._file is not None:
            assert self._base is not None
            with named_errors(self._log):  # or appends would fail later
                os.posix_fallocate(self._file.fileno(), 0, segment_bytes)
            self._finish(self._base + segment_bytes)
        make_durable(self._log)
        fields = _CHECKPOINT.pack(stored_ms, 0, 0, 0, end_offset)
        content = fields + _CHECKSUM.pack(zlib.crc32(fields))
        path = self.directory / CHECKPOINT_NAME
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.ljust(CHECKPOINT_SIZE, b"\0"))
            file.flush()
            os.fsync(file.fileno())
        make_durable(self.directory)
        self._log.rename(self.directory / LOG_NAME)
        make_durable(self.directory)

    def _finish(self, end: int) -> None:
        """Close the segment, durably, with the length up to *end*."""
        assert self._file is not None
        assert self._base is not None
        with named_errors(self._log):
            self._file.flush()
            self._file.truncate(end - self._base)
            os.fsync(self._file.fileno())
            self._file.close()
        self._file = None


def _check_empty(directory: Path) -> None:
    found = sorted(path.name for path in directory.iterdir() if path.name not in _LEFT)
    if found:
        raise ConflictError(f"{directory} is not empty: it has {found[0]}", fix=_FIX)


def _locked(directory: Path) -> int:
    """Return the descriptor that holds the lock by which brokers exclude each other."""
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    try:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        raise ConflictError(
            f"another process uses the directory {directory}",
            fix="restore into a directory of its own",
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
