"""A small disk of its own for a test, which can be filled: a file system in memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MNT_DETACH = 2


@contextmanager
def small_disk(directory: Path, size: int) -> Iterator[Path]:
    """Mount an empty file system of *size* bytes on *directory*, which is made.

    Raises:
        PermissionError: This process may not mount anything.
    """
    directory.mkdir(parents=True)
    libc = ctypes.CDLL(None, use_errno=True)
    target = os.fsencode(directory)
    if libc.mount(b"tmpfs", target, b"tmpfs", 0, f"size={size}".encode()):
        raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        yield directory
    finally:
        libc.umount2(target, _MNT_DETACH)


def free_size(directory: Path) -> int:
    """Return how many bytes the disk of *directory* has left."""
    state = os.statvfs(directory)
    return state.f_bavail * state.f_frsize
