"""Files that are only replaced as a whole.

A new content is written to a file beside the old one, flushed, and renamed over it. Then the
directory is flushed, or a crash could bring the old file back. So the file is the old one or the
new one, whole, even if the power fails.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from eruca_chassis.files.directories import make_directory, private, sync_directory


def replace_file(path: Path, content: bytes) -> None:
    """Replace the file at *path* durably, and create its directory on demand.

    Raises:
        OSError: It could not be written; its predecessor remains, unless only the last flush has
            failed.
    """
    replace_files(path.parent, {path.name: content})


def replace_files(directory: Path, contents: Mapping[str, bytes], *, durably: bool = True) -> None:
    """Replace files of *directory*, which is created on demand.

    Args:
        directory: The directory of all of them.
        contents: The new content of each file, by its name.
        durably: Whether they must survive a power failure once this returns.

    Raises:
        OSError: A file could not be written; it and the later ones keep their predecessors, unless
            only the last flush has failed.
    """
    make_directory(directory)
    for name, content in contents.items():
        path = directory / name
        new = path.with_name(f"{name}.new")
        # Always a new file: the existing one may be a link to elsewhere, or belong to another user.
        new.unlink(missing_ok=True)
        with open(new, "xb", opener=private) as file:
            file.write(content)
            file.flush()
            if durably:
                os.fsync(file.fileno())
        new.replace(path)
    if durably:
        sync_directory(directory)
