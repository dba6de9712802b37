"""Disks for tests: one that is small, and can be filled; one that fails to flush, and forgets."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EIO
from pathlib import Path

import pytest

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


class ForgetfulDisk:
    """The disk's content for the files in *directory*, with a kernel that drops failed pages.

    A reader of a file sees the written bytes. But a failed flush marks them as flushed, so no later
    flush writes them. Only a power cut shows that they were never on the disk.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.is_failing = False
        self._directory = directory
        self._dirty: dict[Path, list[tuple[int, int]]] = {}  # by file: position and size
        self._durable: dict[Path, bytearray] = {}
        self._pwrite, self._pwritev, self._fdatasync = os.pwrite, os.pwritev, os.fdatasync
        monkeypatch.setattr(os, "pwrite", self._write)
        monkeypatch.setattr(os, "pwritev", self._write_all)
        monkeypatch.setattr(os, "fdatasync", self._flush)

    def cut_power(self) -> None:
        """Leave of each file what has reached the disk."""
        for path in self._directory.iterdir():
            path.write_bytes(self._durable.get(path, b"").ljust(path.stat().st_size, b"\0"))
        self._dirty.clear()

    def _write(self, descriptor: int, data: bytes, position: int) -> int:
        return self._note(descriptor, self._pwrite(descriptor, data, position), position)

    def _write_all(self, descriptor: int, buffers: list[memoryview], position: int) -> int:
        return self._note(descriptor, self._pwritev(descriptor, buffers, position), position)

    def _note(self, descriptor: int, size: int, position: int) -> int:
        self._dirty.setdefault(_path_of(descriptor), []).append((position, size))
        return size

    def _flush(self, descriptor: int) -> None:
        path = _path_of(descriptor)
        dirty = self._dirty.pop(path, [])
        if path.parent != self._directory:
            return
        if self.is_failing:
            raise OSError(EIO, os.strerror(EIO))
        durable = self._durable.setdefault(path, bytearray(path.stat().st_size))
        for position, size in dirty:
            durable[position : position + size] = os.pread(descriptor, size, position)
        self._fdatasync(descriptor)


def _path_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()
