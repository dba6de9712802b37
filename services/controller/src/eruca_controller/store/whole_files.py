"""Files that are replaced as a whole, by one process at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eruca_chassis.directories import make_directory, private, sync_directory
from eruca_chassis.file_lock import FileLock, FileLockedError

LOCK_SECONDS: Final = 5.0  # a change takes milliseconds; longer means that its process is stuck
LOCK_POLL_SECONDS: Final = 0.005


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Run the block while no other process, and no other thread, has the lock on *path*. Blocks.

    Raises:
        TimeoutError: Another one has held it for too long.
    """
    make_directory(path.parent)
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            lock = FileLock.acquire(path)
            break
        except FileLockedError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{error.who} has held {path} for {LOCK_SECONDS:g} s") from None
            time.sleep(LOCK_POLL_SECONDS)  # in a thread
    try:
        yield
    finally:
        lock.release()


def replace_file(path: Path, text: str) -> None:
    """Replace the file at *path*, durably: after a crash it is the old one or the new one."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)  # never write through a link that somebody left there
    with open(new, "x", encoding="utf-8", opener=private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_directory(path.parent)  # or a crash could bring the old file back
