"""The place of a broker's backups or of its tier: a folder, or a prefix in an object store.

The protocol is what they need of either. A path is relative, with ``/`` between its parts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol


class PathTakenError(Exception):
    """An object with this path exists already."""


class Repository(Protocol):
    """Objects by path. Each method is one step: it is done as a whole or not at all."""

    async def put(self, path: str, data: bytes) -> None:
        """Write an object, durably; replace one of the same path.

        Raises:
            ErucaError: It cannot be written now.
            OSError: The same.
        """
        ...

    async def put_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        """Write an object of many parts, as :meth:`put` does; nothing is there before the last one.

        Raises:
            ErucaError: It cannot be written now.
            OSError: The same.
        """
        ...

    async def create(self, path: str, data: bytes) -> None:
        """Write an object of a path that no other object has, durably.

        Raises:
            PathTakenError: An object has this path.
            ErucaError: It cannot be written now.
            OSError: The same.
        """
        ...

    async def get(self, path: str) -> bytes:
        """Return an object's bytes.

        Raises:
            FileNotFoundError: There is no such object.
            ErucaError: It cannot be read now.
            OSError: The same.
        """
        ...

    async def get_range(self, path: str, begin: int, end: int) -> bytes:
        """Return an object's bytes from *begin* to *end*; fewer if it is shorter; else as get."""
        ...

    async def sizes(self, folder: str, *, after: str | None = None) -> dict[str, int]:
        """Return the size of each object below *folder*, by path; empty if there is none.

        Args:
            folder: A path; empty: of all objects.
            after: Only objects whose paths come after this one in the alphabet; None: all.

        Raises:
            ErucaError: It cannot be read now.
            OSError: The same.
        """
        ...

    async def delete(self, paths: list[str]) -> None:
        """Delete objects; those that are missing already are skipped.

        Raises:
            ErucaError: Some may not be deleted.
            OSError: The same.
        """
        ...
