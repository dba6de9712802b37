"""Small files of the store: read safely whatever is at their path, replaced as a whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import structlog

from eruca_chassis.files import whole_files

logger = structlog.get_logger(__name__)


class UnfitFileError(OSError):
    """Something other than a regular file of the expected size is at a file's path."""


def read_file(path: Path, size_max: int) -> bytes:
    """Return the content of the regular file at *path*, up to *size_max* bytes; never block.

    Raises:
        UnfitFileError: It is something else, or larger.
        FileNotFoundError: It does not exist.
        OSError: The disk refuses.
    """
    # Without O_NONBLOCK, opening a pipe at this path would block until it has a writer.
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
    """Replace files of *directory* as :func:`eruca_chassis.files.whole_files.replace_files` does.

    A directory in a file's place is moved aside: it is not ours, and would block the file for ever.
    This is done for all files before the first one is written.

    Raises:
        OSError: A directory could not be moved, and no file was written. Or a file could not be
            written; it and the later ones keep their predecessors, unless these were directories,
            or only the last flush has failed.
    """
    for name in contents:
        for place in (directory / name, directory / f"{name}.new"):
            if place.is_dir() and not place.is_symlink():
                _move_aside(place)
    whole_files.replace_files(directory, contents, durably=durably)


def _move_aside(path: Path) -> None:
    number = 1
    while (aside := path.with_name(f"{path.name}.aside-{number}")).exists():
        number += 1
    path.rename(aside)
    logger.warning("a directory in a file's place was moved aside", path=str(path), to=str(aside))
