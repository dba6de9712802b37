"""Entries of consume queues that a start could not write: held in memory until there is room.

A store opens on a full disk, too. What its queues' files lack then is in the log, but the state is
folded from the queues, and offsets are given by them: so they must be whole before anything is
served. Their entries are held in memory, at most those of the log's end that a start walks, and
written as soon as the disk takes them. Once the store is open a queue whose file fails lags instead
(:mod:`.lagging`), and what it lacks is not held anywhere.
"""

from __future__ import annotations

from typing import Protocol

from eruca_broker.store.files.refusals import is_scarcity


class HoldingFiles(Protocol):
    """Files of a queue that may hold entries in memory."""

    def settle(self) -> None:
        """Write what is held; raise OSError while the disk does not take it."""


class HeldEntries:
    """The queues' files of one store that hold entries; and whether more may.

    Attributes:
        is_allowed: Whether entries that the disk refuses may be held: during a start.
        error: Why the last ones are held, or None.
    """

    def __init__(self) -> None:
        self.is_allowed = False
        self.error: OSError | None = None
        self._files: dict[str, HoldingFiles] = {}

    def takes(self, error: OSError) -> bool:
        """Tell whether what the disk has refused with *error* is held instead."""
        return self.is_allowed and is_scarcity(error)

    def note(self, directory: str, files: HoldingFiles, error: OSError) -> None:
        """Note that the files in *directory* hold entries because of *error*."""
        self._files[directory] = files
        self.error = error.with_traceback(None)

    def forget_below(self, directory: str) -> None:
        """Forget files that are deleted, with what they hold."""
        for path in [p for p in self._files if p == directory or p.startswith(f"{directory}/")]:
            del self._files[path]

    def settle(self) -> None:
        """Write all that is held.

        Raises:
            OSError: The disk does not take it all yet.
        """
        for directory, files in list(self._files.items()):
            files.settle()
            del self._files[directory]
        self.error = None
