"""The scrub: the whole log, read and proved once more, at the pace at which that takes its hours.

What it finds is told, and nothing else: the only copy of a record is not made better by cutting it.
Files are read by themselves, in a thread: what a damaged disk takes its time for holds up nobody.
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Final

import structlog

from eruca_broker.core.scrub import Examined, examine
from eruca_broker.store.message_store import MessageStore

STEP_SECONDS: Final = 1.0  # between two steps
STRETCH_SIZE: Final = 256 * 1024  # bytes read at a time, if no record is larger: about 1 ms

_log = structlog.get_logger()


class Scrub:
    """Goes round the log of one store.

    Args:
        store: Whose log it is.
        hours: How long one round takes.

    Attributes:
        offset: Log offset it has come to.
        rounds: How often it has come to the log's end.
    """

    def __init__(self, store: MessageStore, *, hours: float) -> None:
        self.offset = store.log_min_offset
        self.rounds = 0
        self._store = store
        self._steps = hours * 3600 / STEP_SECONDS  # of one round
        self._credit = 0.0  # bytes that may be read
        self._size_needed = 0
        self._found = 0  # damaged records, in this round
        self._found_before = 0  # … in the last one

    @property
    def damaged_count(self) -> int:
        """How many records of the log are known to be damaged."""
        return max(self._found, self._found_before)

    async def step(self) -> None:
        """Read as much as there is time for between two steps."""
        store = self._store
        self._credit += (store.flushed_offset - store.log_min_offset) / self._steps
        while self._credit > 0:
            self.offset = max(self.offset, store.log_min_offset)  # retention may have passed it
            if self.offset >= store.flushed_offset:
                self._end_round()
                return
            self._credit -= await self._read_on()

    def _end_round(self) -> None:
        self.offset = self._store.log_min_offset
        self.rounds += 1
        self._found_before, self._found = self._found, 0
        self._credit = min(self._credit, 0)

    async def _read_on(self) -> int:
        """Examine the next stretch; return how many bytes that were."""
        store, offset = self._store, self.offset
        file = store.log_file(offset)
        end = min(file.end_offset, store.flushed_offset)
        size = min(max(STRETCH_SIZE, self._size_needed), end - offset)
        try:
            stretch = await asyncio.to_thread(_read, file.path, offset - file.base_offset, size)
            examined = examine(stretch, offset, file.end_offset, end)
        except OSError as error:
            if offset < store.log_min_offset:
                return 0  # retention was faster
            fault = f"{error.strerror}; the segment's rest cannot be read"
            examined = Examined(file.end_offset, 0, fault, offset)
        if examined.damage is not None:
            self._tell(examined, file.path)
        self.offset, self._size_needed = examined.next_offset, examined.size_needed
        return size

    def _tell(self, examined: Examined, path: Path) -> None:
        self._found += 1
        _log.error(
            "a record of the log is damaged",
            log_offset=examined.damaged_at,
            file=str(path),
            fault=examined.damage,
            fix="check the disk, and take the file from a backup while the broker is stopped",
        )


def _read(path: Path, position: int, size: int) -> bytes:
    # A descriptor of its own: the store's may be closed meanwhile, and its number another's.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = os.pread(descriptor, size, position)
    finally:
        os.close(descriptor)
    if len(found) < size:
        raise OSError(errno.EIO, "the file is shorter than it was")
    return found
