"""Collect written but unflushed paths: files, and directories whose entries changed.

The writing thread collects paths. :meth:`Unflushed.take` returns them as one piece of work for any
other thread: it shares nothing, because it opens each file itself.

A path that no longer exists was deleted meanwhile, and needs no flush.
"""

from __future__ import annotations

import os
from contextlib import suppress

from eruca_chassis.files.directories import sync_directory
from eruca_chassis.files.flushing import flush_data


class Unflushed:
    """Paths to flush. Not safe to share between threads; see :meth:`take`."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.directories: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.files or self.directories)

    def take(self) -> Unflushed:
        """Return everything collected, and start empty again."""
        taken = Unflushed()
        taken.files, self.files = self.files, set()
        taken.directories, self.directories = self.directories, set()
        return taken

    def add_all(self, other: Unflushed) -> None:
        """Add the rest of *other*."""
        self.files |= other.files
        self.directories |= other.directories

    def sync(self) -> None:
        """Make everything durable. A call after an error continues with the rest.

        Raises:
            FlushError: A flush failed, so the data must be rebuilt.
            OSError: A file could not be opened; nothing is lost.
        """
        while self.files:
            path = next(iter(self.files))
            _sync_file(path)
            self.files.discard(path)
        while self.directories:
            path = next(iter(self.directories))
            with suppress(FileNotFoundError):
                sync_directory(path)
            self.directories.discard(path)


def _sync_file(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        flush_data(descriptor)
    finally:
        os.close(descriptor)
