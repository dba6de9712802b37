"""A lock on a file: at most one process uses the resource that the file represents.

It is a write lock on the first byte, held by an open file description. So the kernel releases it
however the process dies, and a leftover file locks nothing. The file contains the holder's process
id, for the message of a second process.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from eruca_chassis.files.directories import FILE_MODE

_FLOCK: Final = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, process id


class FileLockedError(Exception):
    """The file is locked by another process."""

    def __init__(self, path: Path, holder: int | None) -> None:
        who = "another process" if holder is None else f"process {holder}"
        super().__init__(f"{path} is locked by {who}")
        self.who = who
        self.holder = holder  # process id; None if the file does not contain it


class FileLock:
    """A held lock; create one with :meth:`acquire`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, path: Path) -> Self:
        """Lock the file at *path* for this process; create the file if it is missing.

        Raises:
            FileLockedError: It is already locked, perhaps by this very process.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=FILE_MODE)
        try:
            # A lock of the open file, not of the process (F_SETLK): closing any other descriptor of
            # the file would silently release a process's lock.
            request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
        except (BlockingIOError, PermissionError):
            holder = os.pread(descriptor, 32, 0)
            os.close(descriptor)
            raise FileLockedError(path, _process_id(holder)) from None
        except OSError:
            os.close(descriptor)
            raise
        with suppress(OSError):  # only for messages; a full disk must not prevent locking
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return cls(descriptor)

    @staticmethod
    def holder_of(path: Path) -> int | None:
        """Return the process that has locked the file at *path*, without touching it.

        None: nobody has. 0: a process that the file does not name.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, request)
            if _FLOCK.unpack(answer)[0] == fcntl.F_UNLCK:
                return None
            return _process_id(os.pread(descriptor, 32, 0)) or 0
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Unlock. The file stays: deleting it could break the lock of another process."""
        os.close(self._descriptor)


def _process_id(content: bytes) -> int | None:
    text = content.strip()
    return int(text) if text.isdigit() else None
