"""Detect that a file has changed, without reading it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class FileState(NamedTuple):
    """The outside of a file; if it has changed, the content may have changed."""

    inode: int
    changed_ns: int
    size: int


def state_of(path: Path) -> FileState | None:
    """Return the state of a file; None if it is missing or unreachable."""
    try:
        status = path.stat()
    except OSError:
        return None
    return FileState(status.st_ino, status.st_mtime_ns, status.st_size)
