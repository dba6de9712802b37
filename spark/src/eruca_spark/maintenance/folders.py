"""A lake's directories on this machine, changed so that readers never see half of a change.

A directory is replaced by exchanging two names, which Linux does atomically. Other systems, and
file systems without this operation, are refused.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from eruca_spark.lake import LakeError
from eruca_spark.lake_files import LakeFiles, LocalFiles, adopt
from eruca_spark.maintenance.merging import merge_files, row_count

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2  # of renameat2(2)
_LOCK: Final = "_maintain.lock"


class LakeFolders(LakeFiles, Protocol):
    """The operations that maintenance needs, beside those of an export."""

    def exists(self, path: str) -> bool:
        """Tell whether there is a file or a directory."""

    def files_below(self, path: str) -> list[str]:
        """Return all files below a directory, sorted; empty if there is none."""

    def link(self, path: str, other: str) -> None:
        """Give a file a second name, in a directory that exists."""

    def create(self, path: str, like: str) -> None:
        """Create an empty directory, with the mode and owner of another one."""

    def exchange(self, path: str, other: str) -> None:
        """Exchange two directories: at any moment, both names exist."""

    def delete_if_empty(self, path: str) -> None:
        """Delete a directory that has no entry."""

    def merge(self, paths: list[str], target: str) -> int:
        """Write the rows of *paths* to a new file, and return their number."""

    def rows(self, path: str) -> int:
        """Return the number of rows of a file."""


class LocalFolders(LocalFiles):
    """Directories on a file system of this machine.

    Raises:
        LakeError: This system cannot exchange directories.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if not sys.platform.startswith("linux") or self._renameat2 is None:
            raise LakeError("the maintenance of a lake requires Linux, which exchanges directories")

    def exists(self, path: str) -> bool:
        """Tell whether there is a file or a directory."""
        return (self._root / path).exists()

    def files_below(self, path: str) -> list[str]:
        """Return all files below a directory, sorted."""
        found = (one for one in (self._root / path).rglob("*") if not one.is_dir())
        return sorted(one.relative_to(self._root).as_posix() for one in found)

    def link(self, path: str, other: str) -> None:
        """Give a file a second name, in a directory that exists."""
        (self._root / other).hardlink_to(self._root / path)

    def create(self, path: str, like: str) -> None:
        """Create an empty directory, with the mode and, as far as permitted, owner of another."""
        (self._root / path).mkdir(parents=True)
        adopt(self._root / path, self._root / like)

    def exchange(self, path: str, other: str) -> None:
        """Exchange two directories, durably.

        Raises:
            LakeError: The file system cannot do it.
        """
        assert self._renameat2 is not None
        names = (os.fsencode(self._root / one) for one in (path, other))
        if self._renameat2(_AT_FDCWD, next(names), _AT_FDCWD, next(names), _RENAME_EXCHANGE):
            code = ctypes.get_errno()
            if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise LakeError(
                    f"the file system of {self._root} cannot exchange directories, so readers"
                    " would see half of a change; keep the lake on ext4, XFS or Btrfs"
                )
            raise OSError(code, os.strerror(code), path)
        self._sync_folders_above([path, other])

    def delete_if_empty(self, path: str) -> None:
        """Delete a directory that has no entry."""
        target = self._root / path
        if target.is_dir() and not any(target.iterdir()):
            target.rmdir()

    def merge(self, paths: list[str], target: str) -> int:
        """Write the rows of *paths* to a new file, with the mode of the first."""
        sources = [self._root / path for path in paths]
        rows = merge_files(sources, self._root / target)
        adopt(self._root / target, sources[0])
        return rows

    def rows(self, path: str) -> int:
        """Return the number of rows of a file."""
        return row_count(self._root / path)

    @contextmanager
    def maintaining(self) -> Iterator[None]:
        """Hold the lock of a maintenance.

        Raises:
            LakeBusyError: Another maintenance runs.
        """
        with self._lock(_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB, "another maintenance changes"):
            yield
