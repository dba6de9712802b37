"""Files that several processes change, one at a time, and lines that are only added to them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eruca_chassis.files.directories import make_directory, private
from eruca_chassis.files.file_lock import FileLock, FileLockedError

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


def append_line(path: Path, line: str) -> None:
    """Append *line* to the file at *path* and flush it; first cut off half a line of a crash.

    The name of a file that this creates is durable once the caller has flushed the directory.
    """
    with open(path, "ab+", opener=private) as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())
