"""A lake's directories in memory, which can be killed before any of their changes."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

Rows = tuple[str, ...]
ROW_SIZE = 10  # bytes of a row in a data file


class KilledError(BaseException):
    """The process is dead; nothing of it goes on."""


class MemoryFolders:
    """The operations of a maintenance, on files that are texts or rows.

    Every change is one step, and so is every file of a directory that is deleted.
    """

    def __init__(self) -> None:
        self.files: dict[str, str | Rows] = {}
        self.folders: set[str] = set()  # the empty ones that were created
        self.steps_left: int | None = None  # until the kill
        self.locks: set[str] = set()
        self.look: Callable[[], None] = lambda: None  # called after each step

    def step(self) -> None:
        """Be killed, if it is time."""
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise KilledError
            self.steps_left -= 1

    def changed(self) -> None:
        self.look()

    def check_locked(self, path: str) -> None:
        assert "batch" in self.locks or not path.startswith("_manifest/")

    def glob(self, pattern: str) -> list[tuple[str, int]]:
        return sorted(
            (path, size_of(content))
            for path, content in self.files.items()
            if path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)
        )

    def read(self, path: str) -> str | None:
        content = self.files.get(path)
        assert content is None or isinstance(content, str)
        return content

    def write(self, path: str, text: str) -> None:
        self.step()
        self.check_locked(path)
        self.files[path] = text
        self.changed()

    def make_durable(self, paths: Iterable[str]) -> None:
        for path in paths:
            assert path in self.files

    def delete(self, path: str) -> None:
        for one in [path, *self.files_below(path)]:
            self.step()
            self.check_locked(one)
            self.files.pop(one, None)
            self.changed()
        self.folders = {one for one in self.folders if not _is_below(one, path) and one != path}

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.folders or bool(self.files_below(path))

    def files_below(self, path: str) -> list[str]:
        return sorted(one for one in self.files if _is_below(one, path))

    def link(self, path: str, other: str) -> None:
        self.step()
        assert other not in self.files
        assert self.exists(other.rpartition("/")[0])
        self.files[other] = self.files[path]
        self.changed()

    def create(self, path: str, like: str) -> None:
        self.step()
        assert self.exists(like)
        assert not self.exists(path)
        self.folders.add(path)

    def exchange(self, path: str, other: str) -> None:
        self.step()
        assert self.exists(path)
        assert self.exists(other)
        moved = {}
        for one in list(self.files):
            for here, there in ((path, other), (other, path)):
                if _is_below(one, here):
                    moved[there + one.removeprefix(here)] = self.files.pop(one)
        self.files |= moved
        self.folders |= {path, other}
        self.changed()

    def delete_if_empty(self, path: str) -> None:
        self.step()
        if not self.files_below(path):
            self.folders.discard(path)

    def merge(self, paths: list[str], target: str) -> int:
        rows: Rows = ()
        for path in paths:
            self.step()
            content = self.files[path]
            assert isinstance(content, tuple)
            rows += content
            self.files[target] = rows
            self.changed()
        return len(rows)

    def rows(self, path: str) -> int:
        return len(self.files[path])

    def abandoned(self, pattern: str) -> list[str]:
        return [path for path, _ in self.glob(pattern)]

    @contextmanager
    def _held(self, name: str) -> Iterator[None]:
        assert name not in self.locks
        self.locks.add(name)
        try:
            yield
        finally:
            self.locks.discard(name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._held("export"):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._held("batch"):
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._held("readers"):
            yield

    @contextmanager
    def unread(self) -> Iterator[None]:
        with self._held("readers"):
            yield


def size_of(content: str | Rows) -> int:
    """Return the size of a file: of rows, as if all had the same."""
    return len(content) * (ROW_SIZE if isinstance(content, tuple) else 1)


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")
