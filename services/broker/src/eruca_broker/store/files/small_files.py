"""Small files of the store: read whatever lies in their place, replaced as a whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import structlog

from eruca_chassis.directories import make_directory, private, sync_directory

logger = structlog.get_logger(__name__)


class UnfitFileError(OSError):
    """Something else is in a file's place, or the file is too large to be what it should be."""


def read_file(path: Path, size_max: int) -> bytes:
    """Return what is in the regular file at *path*, of at most *size_max* bytes; never wait for it.

    Raises:
        UnfitFileError: It is something else, or larger.
        FileNotFoundError: There is none.
        OSError: The disk refuses.
    """
    # Opened as others would, a pipe of that name would have us wait for who writes into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnfitFileError(errno.EINVAL, "expected a regular file, found something else")
        if found.st_size > size_max:
            raise UnfitFileError(
                errno.EFBIG, f"expected {size_max} bytes at most, found {found.st_size}"
            )
        return file.read()


def replace_files(directory: Path, contents: Mapping[str, bytes], *, durably: bool = True) -> None:
    """Put files in *directory*, which is made if need be; *contents* is by their names.

    Each replaces its predecessor at once or not at all, whenever the power fails. A directory in a
    file's place is moved aside: it is not ours, and would be in the way for ever.

    Raises:
        OSError: One could not be written; its predecessor stands, and so do those behind it.
    """
    make_directory(directory)
    for name, content in contents.items():
        path = directory / name
        temporary = path.with_name(f"{name}.new")
        for place in (path, temporary):
            if place.is_dir() and not place.is_symlink():
                _move_aside(place)
        # A new file: what is there may be a link to somewhere else, or another's.
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb", opener=private) as file:
            file.write(content)
            file.flush()
            if durably:
                os.fsync(file.fileno())
        temporary.replace(path)
    if durably:
        sync_directory(directory)


def _move_aside(path: Path) -> None:
    number = 1
    while (aside := path.with_name(f"{path.name}.aside-{number}")).exists():
        number += 1
    path.rename(aside)
    logger.warning("a directory in a file's place was moved aside", path=str(path), to=str(aside))
