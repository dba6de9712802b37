"""Entries of the key index that are not durable yet, and the work that makes them durable."""

from __future__ import annotations

from contextlib import suppress

from eruca_broker.store.index.index_file import IndexFile
from eruca_chassis.files.directories import sync_directory


class UnflushedIndex:
    """The flush work that makes all entries up to its creation durable."""

    def __init__(self, directory: str | None, files: list[IndexFile]) -> None:
        self._directory = directory
        # A full file never changes, so any thread can write it.
        self._files = [(file, file.header, file.room == 0) for file in files]

    @property
    def files(self) -> list[IndexFile]:
        """The files that are not flushed yet."""
        # A copy in one step: `sync` removes files meanwhile.
        return [file for file, _, _ in tuple(self._files)]

    @property
    def needs_directory(self) -> bool:
        """True if the directory is not flushed yet."""
        return self._directory is not None

    def sync(self) -> None:
        """Flush them; may be called in another thread, and again after an error.

        Raises:
            FlushError: A flush failed, so entries may be lost.
            OSError: A file could not be opened or written; calling again retries.
        """
        if self._directory is not None:
            sync_directory(self._directory)  # else a header could be durable without its file
            self._directory = None
        while self._files:
            file, header, is_full = self._files[0]  # oldest first: none follows an unfinished one
            with suppress(FileNotFoundError):  # deleted meanwhile
                if is_full:
                    file.seal()
                else:
                    file.flush(header)
            del self._files[0]
