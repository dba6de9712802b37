"""The store's lock: at most one process has a store directory open.

It excludes a RocketMQ broker as well, which locks the same byte of the same file.

Source: RocketMQ 5.3, ``DefaultMessageStore.start``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from eruca_chassis.files.file_lock import FileLock, FileLockedError

LOCK_NAME: Final = "lock"


class StoreLockedError(Exception):
    """Another process has the store directory open."""

    def __init__(self, directory: Path, locked: FileLockedError) -> None:
        super().__init__(f"the store directory {directory} is in use by {locked.who}")
        self.directory = directory
        self.holder = locked.holder  # process id; None if the holder left none


def lock_directory(directory: Path) -> FileLock:
    """Lock the existing *directory* for this process.

    Raises:
        StoreLockedError: It is locked already, perhaps by this process itself.
    """
    try:
        return FileLock.acquire(directory / LOCK_NAME)
    except FileLockedError as locked:
        raise StoreLockedError(directory, locked) from None
