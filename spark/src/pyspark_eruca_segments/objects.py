"""Files and objects, read in windows: a file by the kernel, an object by ranges of its bytes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from eruca.contract.errors import ErucaError, ValidationError
from eruca.exporting.errors import OptionError, SourceError, UnavailableError
from eruca.objects.places import open_repository
from eruca.objects.repositories import Repository
from pyspark_eruca_segments.walk import Read

T = TypeVar("T")
INSTALLATION: Final = "in a copy of Eruca's repository: pip install './spark[segments]'"
_GONE: Final = (
    "it has been deleted since the table was loaded, or never copied: load the table again"
)


class Source(NamedTuple):
    """The place of a file: in a folder of this machine's, or in a repository."""

    place: str
    folder: str | None  # below the place, in a repository; None: the place is a local folder
    path: str  # of the file below both

    @property
    def text(self) -> str:
        """The file's name in texts."""
        parts = (self.place.rstrip("/"), self.folder, self.path)
        return "/".join(part for part in parts if part)


class Objects:
    """A repository, read from code that does not wait in an event loop."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._runner = asyncio.Runner()

    @classmethod
    def at(cls, place: str, folder: str) -> Self:
        """Open the repository in a folder of *place*.

        Raises:
            OptionError: It is no folder and no object store, or obstore is not installed.
        """
        try:
            repository = open_repository(place, folder, named="the path", installation=INSTALLATION)
        except ValidationError as error:
            raise OptionError(_told(error)) from error
        return cls(repository)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def get(self, path: str) -> bytes:
        """Return an object's bytes; see :class:`.Repository`."""
        return self._run(self._repository.get(path), path)

    def get_range(self, path: str, begin: int, end: int) -> bytes:
        """Return some of an object's bytes; see :class:`.Repository`."""
        return self._run(self._repository.get_range(path, begin, end), path)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all objects below *folder*; see :class:`.Repository`."""
        return self._run(self._repository.sizes(folder), folder)

    def _run(self, work: Coroutine[Any, Any, T], path: str) -> T:
        try:
            return self._runner.run(work)
        except FileNotFoundError as error:
            raise SourceError(f"{self._repository}/{path}: {_GONE}") from error
        except ErucaError as error:
            raise UnavailableError(_told(error)) from error
        except OSError as error:
            raise UnavailableError(f"{self._repository}/{path} cannot be read: {error}") from error


@contextmanager
def reading(source: Source) -> Iterator[Read]:
    """Yield a function that reads a file.

    Raises:
        SourceError: The file is missing.
        UnavailableError: It cannot be read now.
    """
    if source.folder is None:
        with _reading_file(Path(source.place) / source.path) as read:
            yield read
        return
    with Objects.at(source.place, source.folder) as objects:
        yield lambda begin, end: objects.get_range(source.path, begin, end)


@contextmanager
def _reading_file(path: Path) -> Iterator[Read]:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise SourceError(f"{path}: {_GONE}") from error
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error}") from error
    try:
        yield lambda begin, end: _read(path, descriptor, begin, end)
    finally:
        os.close(descriptor)


def _read(path: Path, descriptor: int, begin: int, end: int) -> bytes:
    parts: list[bytes] = []
    while begin < end:
        try:
            part = os.pread(descriptor, end - begin, begin)
        except OSError as error:
            raise UnavailableError(f"{path} cannot be read: {error}") from error
        if not part:
            break
        parts.append(part)
        begin += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _told(error: ErucaError) -> str:
    return f"{error.detail}; {error.fix}" if error.fix else error.detail
