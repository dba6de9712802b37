"""The store's lock: at most one process has a store directory open.

A write lock on the first byte of the file ``lock``, held by an open file description, so the
kernel drops it when the process dies however it dies, and a forgotten file locks nothing. It
excludes a RocketMQ broker as well, which asks for the same byte. The file holds the holder's
process id, for the message a second process prints.

Source: RocketMQ 5.3, ``DefaultMessageStore.start``.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

LOCK_NAME: Final = "lock"
_FLOCK: Final = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, process id


class StoreLockedError(Exception):
    """Another process has the store directory open."""

    def __init__(self, directory: Path, holder: int | None) -> None:
        who = "another process" if holder is None else f"process {holder}"
        super().__init__(f"the store directory {directory} is in use by {who}")
        self.directory = directory
        self.holder = holder  # process id; None where the holder did not leave it


class DirectoryLock:
    """A held lock; made by :meth:`acquire`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, directory: Path) -> Self:
        """Lock *directory*, which exists, for this process.

        Raises:
            StoreLockedError: It is locked already, be it by this very process.
        """
        descriptor = os.open(
            directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=0o644
        )
        try:
            # Of the open file, not of the process (F_SETLK): closing some other descriptor of
            # this file would silently drop a process's lock.
            request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
        except (BlockingIOError, PermissionError):
            holder = os.pread(descriptor, 32, 0)
            os.close(descriptor)
            raise StoreLockedError(directory, _process_id(holder)) from None
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
