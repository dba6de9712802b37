"""A repository in a folder: each object is a file.

A file is written beside its place, flushed and renamed, or linked if no other may have its name. So
an existing file is whole, after a power failure, too. A killed run leaves ``*.unfinished`` files,
which the next backup with ``--keep``, or the tier, deletes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from eruca.objects.durable_files import make_durable
from eruca.objects.repositories import PathTakenError

UNFINISHED: Final = ".unfinished"
_DIRECTORY_MODE: Final = 0o750
_FILE_MODE: Final = 0o640


class FolderRepository:
    """The files below a folder, which is made when it is first written to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    async def put(self, path: str, data: bytes) -> None:
        """Write a file; see :class:`.Repository`."""
        await asyncio.to_thread(self._put, self._folder / path, data, is_new=False)

    async def put_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        """Write a file of many parts; see :class:`.Repository`."""
        place = self._folder / path
        unfinished = await asyncio.to_thread(_begin, place)
        try:
            async for part in parts:
                await asyncio.to_thread(_append, unfinished, part)
            await asyncio.to_thread(_finish, unfinished, place)
        except BaseException:
            with suppress(FileNotFoundError):
                unfinished.unlink()
            raise

    async def create(self, path: str, data: bytes) -> None:
        """Write a file that is new; see :class:`.Repository`."""
        await asyncio.to_thread(self._put, self._folder / path, data, is_new=True)

    async def get(self, path: str) -> bytes:
        """Return a file's bytes; see :class:`.Repository`."""
        return await asyncio.to_thread((self._folder / path).read_bytes)

    async def get_range(self, path: str, begin: int, end: int) -> bytes:
        """Return some of a file's bytes; see :class:`.Repository`."""
        return await asyncio.to_thread(_read, self._folder / path, begin, end)

    async def sizes(self, folder: str, *, after: str | None = None) -> dict[str, int]:
        """Return the sizes of all files below *folder*; see :class:`.Repository`."""
        found = await asyncio.to_thread(self._sizes, folder)
        return {path: size for path, size in found.items() if after is None or path > after}

    async def delete(self, paths: list[str]) -> None:
        """Delete files; see :class:`.Repository`."""
        for path in paths:
            with suppress(FileNotFoundError):
                await asyncio.to_thread((self._folder / path).unlink)

    def _put(self, path: Path, data: bytes, *, is_new: bool) -> None:
        _make(path.parent)
        unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        try:
            with named_errors(path), os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                os.link(unfinished, path)
            else:
                unfinished.replace(path)
        except FileExistsError:
            raise PathTakenError(str(path)) from None
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()
        make_durable(path.parent)

    def _sizes(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for directory, _, names in os.walk(self._folder / folder, onerror=_refuse):
            for path in (Path(directory, name) for name in names):
                with suppress(FileNotFoundError):  # another run has just deleted it
                    if path.is_file():
                        found[path.relative_to(self._folder).as_posix()] = path.stat().st_size
        return found


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Name the file in errors of its descriptor: a full disk should be known by its path."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _begin(path: Path) -> Path:
    """Make the file in which the one at *path* is written, and return its path."""
    _make(path.parent)
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE))
    return unfinished


def _append(unfinished: Path, part: bytes) -> None:
    with named_errors(unfinished), unfinished.open("ab") as file:
        file.write(part)


def _finish(unfinished: Path, path: Path) -> None:
    make_durable(unfinished)
    unfinished.replace(path)
    make_durable(path.parent)


def _make(directory: Path) -> None:
    """Make a directory and those above it, durably."""
    if directory.is_dir():
        return
    _make(directory.parent)
    directory.mkdir(_DIRECTORY_MODE, exist_ok=True)
    make_durable(directory.parent)


def _refuse(error: OSError) -> None:
    """Raise why a folder cannot be listed: it may have backups, unless it is missing."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _read(path: Path, begin: int, end: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(end - begin)
