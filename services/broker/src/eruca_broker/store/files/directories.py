"""Directories of the store: making them, and making what happens in them survive a power cut.

A file's name lies in its directory, so creating, renaming or deleting a file is durable only once
the *directory* has been flushed; flushing the file itself is not enough.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def sync_directory(directory: Path | str) -> None:
    """Make the creations, renames and deletions in *directory* durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Create *directory* and what is missing above it, durably; do nothing if it is there."""
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def replace_files(directory: Path, contents: Mapping[str, bytes]) -> None:
    """Put files in *directory*, which is made if need be, durably; *contents* is by their names.

    Each replaces its predecessor at once or not at all, whenever the power fails.

    Raises:
        OSError: One could not be written; its predecessor stands, and so do those behind it.
    """
    make_directory(directory)
    for name, content in contents.items():
        path = directory / name
        temporary = path.with_name(f"{name}.new")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    sync_directory(directory)
