"""A lock on a file: at most one process has what the file stands for.

A write lock on the first byte, held by an open file description, so the kernel drops it when the
process dies however it dies, and a forgotten file locks nothing. The file holds the holder's
process id, for the message a second process prints.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from eruca_chassis.directories import FILE_MODE

_FLOCK: Final = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, process id


class FileLockedError(Exception):
    """Another process has the file locked."""

    def __init__(self, path: Path, holder: int | None) -> None:
        who = "another process" if holder is None else f"process {holder}"
        super().__init__(f"{path} is locked by {who}")
        self.who = who
        self.holder = holder  # process id; None where the holder did not leave it


class FileLock:
    """A held lock; made by :meth:`acquire`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, path: Path) -> Self:
        """Lock the file at *path* for this process; make it where it is not there.

        Raises:
            FileLockedError: It is locked already, be it by this very process.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=FILE_MODE)
        try:
            # Of the open file, not of the process (F_SETLK): closing some other descriptor of
            # this file would silently drop a process's lock.
            request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
        except (BlockingIOError, PermissionError):
            holder = os.pread(descriptor, 32, 0)
            os.close(descriptor)
            raise FileLockedError(path, _process_id(holder)) from None
        except OSError:
            os.close(descriptor)
            raise
        with suppress(OSError):  # a courtesy, which a full disk may refuse
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Unlock. The file stays: deleting it could take a lock from under a third process."""
        os.close(self._descriptor)


def _process_id(content: bytes) -> int | None:
    text = content.strip()
    return int(text) if text.isdigit() else None
