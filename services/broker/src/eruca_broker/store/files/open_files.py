"""Open files up to a limit: the descriptors of thousands of small files.

A projection has one or more files per queue, far more than a process may hold open. At the limit
the least recently used descriptor is closed. Closing loses nothing: written data stays with the
kernel, and a flush opens the file again.

Used from one thread only. A returned descriptor is valid until the next call.
"""

from __future__ import annotations

import os
from collections import OrderedDict

from eruca_chassis.files.directories import FILE_MODE


class OpenFiles:
    """Descriptors by path, opened for reading and writing."""

    def __init__(self, limit: int) -> None:
        assert limit >= 1, limit
        self._limit = limit
        self._descriptors: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._descriptors)

    @property
    def room(self) -> int:
        """Number of files that can be opened before the limit is reached."""
        return self._limit - len(self._descriptors)

    def descriptor(self, path: str) -> int:
        """Return a descriptor of the existing file at *path*.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        found = self._descriptors.get(path)
        if found is not None:
            self._descriptors.move_to_end(path)
            return found
        return self._keep(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def create(self, path: str, size: int) -> int:
        """Create the file at *path* with *size* bytes, all zero, without using space yet.

        An existing file, left by a failed creation, is completed.

        Raises:
            OSError: It could not be extended; calling again retries.
        """
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            descriptor = self._keep(path, os.open(path, flags, mode=FILE_MODE))
        os.ftruncate(descriptor, size)
        return descriptor

    def forget(self, path: str) -> None:
        """Close the file at *path*, if it is open."""
        descriptor = self._descriptors.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def forget_below(self, directory: str) -> None:
        """Close the files in *directory*."""
        for path in [path for path in self._descriptors if path.startswith(f"{directory}/")]:
            self.forget(path)

    def close(self) -> None:
        """Close all files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def _keep(self, path: str, descriptor: int) -> int:
        while len(self._descriptors) >= self._limit:
            os.close(self._descriptors.popitem(last=False)[1])
        self._descriptors[path] = descriptor
        return descriptor
