"""Entries of consume queues that a start could not write: held in memory until there is room.

A store opens on a full disk, too. Entries that its queues' files then lack are in the log. But the
state is folded from the queues, and offsets are assigned from them: so the queues must be complete
before anything is served. Their entries are held in memory, and written as soon as there is room.
They are at most those of the part of the log that a start walks. Once the store is open, a queue
whose file fails lags instead (:mod:`.lagging`), and its missing entries are not held in memory.
"""

from __future__ import annotations

from typing import Protocol

from eruca_broker.store.files.refusals import is_scarcity


class HoldingFiles(Protocol):
    """Files of a queue that may hold entries in memory."""

    def settle(self) -> None:
        """Write the held entries; raise OSError while the disk refuses them."""


class HeldEntries:
    """The queue files of one store that hold entries, and whether more may.

    Attributes:
        is_allowed: Whether refused entries may be held: during a start.
        error: Why the last ones are held, or None.
    """

    def __init__(self) -> None:
        self.is_allowed = False
        self.error: OSError | None = None
        self._files: dict[str, HoldingFiles] = {}

    def takes(self, error: OSError) -> bool:
        """Tell whether entries refused with *error* are held."""
        return self.is_allowed and is_scarcity(error)

    def note(self, directory: str, files: HoldingFiles, error: OSError) -> None:
        """Record that the files in *directory* hold entries because of *error*."""
        self._files[directory] = files
        self.error = error.with_traceback(None)

    def forget_below(self, directory: str) -> None:
        """Drop deleted files, with the entries that they hold."""
        for path in [p for p in self._files if p == directory or p.startswith(f"{directory}/")]:
            del self._files[path]

    def settle(self) -> None:
        """Write all held entries.

        Raises:
            OSError: The disk still refuses some.
        """
        for directory, files in list(self._files.items()):
            files.settle()
            del self._files[directory]
        self.error = None
