"""Detect that a file was changed or replaced, without reading it."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import NamedTuple


class Look(NamedTuple):
    """The outside of a file; if it has changed, the content may have changed."""

    inode: int
    size: int
    changed_ns: int


MISSING = Look(0, 0, 0)


def look_at(path: str | PathLike[str]) -> Look:
    """Return the look of a file; of a link, that of the file behind it."""
    try:
        found = Path(path).stat()
    except OSError:
        return MISSING
    return Look(found.st_ino, found.st_size, found.st_mtime_ns)
