"""Directories: create them, keep them private, and make changes in them durable.

A file's name is stored in its directory. So creating, renaming or deleting a file is durable only
once the *directory* has been flushed; flushing the file itself is not enough.

A service keeps its files private. Its own process lets nobody else read them, or only their group
if that is configured (:func:`keep_private`). Inside a foreign process, whose file mode mask must
not be changed, at most the group can read them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import structlog

from eruca_chassis.files.flushing import flush_directory

FILE_MODE: Final = 0o640  # of new files; the process's mask may restrict it further
DIRECTORY_MODE: Final = 0o750
_PRIVATE_MASK: Final = 0o077
_GROUP_MASK: Final = 0o027

logger = structlog.get_logger(__name__)


def keep_private(*, group_access: bool) -> None:
    """Make new files and directories of this process unreadable for others, whatever its mask was.

    Args:
        group_access: Whether the group may read them: 0640 and 0750 instead of 0600 and 0700.
    """
    os.umask(_GROUP_MASK if group_access else _PRIVATE_MASK)


def private(path: str, flags: int) -> int:
    """Open a file; an opener for ``open`` that makes new files private."""
    return os.open(path, flags, FILE_MODE)


def tighten(directory: Path, *, group_access: bool) -> None:
    """Remove others' access to an existing *directory*; log it if they had any.

    Its files are then out of their reach, whatever their own modes: older versions created some
    that everybody could read. A stricter mode stays.

    Args:
        directory: The directory whose mode is changed.
        group_access: Whether the group keeps its access.
    """
    found = stat.S_IMODE(directory.stat().st_mode)
    kept = found & ~(_GROUP_MASK if group_access else _PRIVATE_MASK)
    if kept != found:
        directory.chmod(kept)
        logger.warning(
            "removed others' access to a directory",
            directory=str(directory),
            was=f"{found:04o}",
            now=f"{kept:04o}",
        )


def sync_directory(directory: Path | str) -> None:
    """Make the creations, renames and deletions in *directory* durable.

    Raises:
        FlushError: Some of them may be lost.
        OSError: The directory could not be opened; nothing is lost.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        flush_directory(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Create *directory* and its missing parents durably; do nothing if it exists."""
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir(DIRECTORY_MODE, exist_ok=True)
        sync_directory(path.parent)
