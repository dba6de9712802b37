"""Directories: making them, who may look into them, and what in them survives a power cut.

A file's name lies in its directory, so creating, renaming or deleting a file is durable only once
the *directory* has been flushed; flushing the file itself is not enough.

A service keeps its files to itself. Its process lets nobody else read them, or their group where
that is asked for (:func:`keep_private`). In somebody else's process, whose file mode mask is not
ours to set, the group can at most.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import structlog

from eruca_chassis.flushing import flush_directory

FILE_MODE: Final = 0o640  # the most that a file is made with; the process's mask takes from it
DIRECTORY_MODE: Final = 0o750
_PRIVATE_MASK: Final = 0o077
_GROUP_MASK: Final = 0o027

logger = structlog.get_logger(__name__)


def keep_private(*, group_access: bool) -> None:
    """Let this process make files and directories that others cannot read, whatever its mask was.

    Args:
        group_access: Whether the group may read them: 0640 and 0750 instead of 0600 and 0700.
    """
    os.umask(_GROUP_MASK if group_access else _PRIVATE_MASK)


def private(path: str, flags: int) -> int:
    """Open a file as ``open`` does, of which it is an opener; one that is made is not for all."""
    return os.open(path, flags, FILE_MODE)


def tighten(directory: Path, *, group_access: bool) -> None:
    """Close *directory*, which is there, to others than its owner; log it if it was open.

    Files in it are then out of their reach, whatever their own modes: older versions made some
    that everybody could read. A mode that is stricter stays.

    Args:
        directory: Whose mode is changed.
        group_access: Whether the group may go on reading what is in it.
    """
    found = stat.S_IMODE(directory.stat().st_mode)
    kept = found & ~(_GROUP_MASK if group_access else _PRIVATE_MASK)
    if kept != found:
        directory.chmod(kept)
        logger.warning(
            "a directory was open to others and is closed to them",
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
    """Create *directory* and what is missing above it, durably; do nothing if it is there."""
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir(DIRECTORY_MODE, exist_ok=True)
        sync_directory(path.parent)
