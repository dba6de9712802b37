"""A repository in a folder: each object is a file.

A file is written beside its place, flushed and renamed, or linked if no other may have its name. So
an existing file is whole, after a power failure, too. A killed run leaves ``*.unfinished`` files,
which the next backup with ``--keep``, or the tier, deletes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from eruca.objects.durable_files import make_durable
from eruca.objects.repositories import PathTakenError

UNFINISHED: Final = ".unfinished"
THREADS: Final = 16  # more than the broker's fetches from a tier: its other steps have some, too
_DIRECTORY_MODE: Final = 0o750
_FILE_MODE: Final = 0o640

P = ParamSpec("P")
T = TypeVar("T")


class FolderRepository:
    """The files below a folder, which is made when it is first written to.

    Its threads are its own: a network file system that hangs holds up nobody else's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="folder")

    def __str__(self) -> str:
        return str(self._folder)

    async def put(self, path: str, data: bytes) -> None:
        """Write a file; see :class:`.Repository`."""
        await self._in_thread(self._put, self._folder / path, data, is_new=False)

    async def put_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        """Write a file of many parts; see :class:`.Repository`."""
        place = self._folder / path
        unfinished = await self._in_thread(_begin, place)
        try:
            async for part in parts:
                await self._in_thread(_append, unfinished, part)
            await self._in_thread(_finish, unfinished, place)
        except asyncio.CancelledError:
            self._pool.submit(_remove, unfinished)  # nobody waits: the folder may hang
            raise
        except BaseException:
            await self._in_thread(_remove, unfinished)
            raise

    async def create(self, path: str, data: bytes) -> None:
        """Write a file that is new; see :class:`.Repository`."""
        await self._in_thread(self._put, self._folder / path, data, is_new=True)

    async def get(self, path: str) -> bytes:
        """Return a file's bytes; see :class:`.Repository`."""
        return await self._in_thread((self._folder / path).read_bytes)

    async def get_range(self, path: str, begin: int, end: int) -> bytes:
        """Return some of a file's bytes; see :class:`.Repository`."""
        return await self._in_thread(_read, self._folder / path, begin, end)

    async def sizes(self, folder: str, *, after: str | None = None) -> dict[str, int]:
        """Return the sizes of all files below *folder*; see :class:`.Repository`."""
        found = await self._in_thread(self._sizes, folder)
        return {path: size for path, size in found.items() if after is None or path > after}

    async def delete(self, paths: list[str]) -> None:
        """Delete files; see :class:`.Repository`."""
        for path in paths:
            with suppress(FileNotFoundError):
                await self._in_thread((self._folder / path).unlink)

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(work, *args, **kwargs))

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


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()


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
