"""The scrub: read and verify the whole log again and again, at a pace set by a round's duration.

It never removes a damaged record: that would not make its only copy better. It reports the record,
and a replica repairs it by a peer's copy (:attr:`Scrub.on_rot`, :mod:`.upkeep.record_repair`). It
reads files itself, in a thread, so that a slow damaged disk delays nothing else. Its progress is
saved (:mod:`.scrub_progress`), so that a round continues after a restart.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from eruca.contract.records import RecordLayout
from eruca_broker.core.log.scrub import Examined, examine
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.reading.readable_log import LogFile
from eruca_broker.store.scrub_progress import Progress, read_progress, write_progress

STEP_SECONDS: Final = 1.0  # between two steps
SAVE_SECONDS: Final = 60.0  # the part of a round that may be repeated
STRETCH_SIZE: Final = 256 * 1024  # bytes read at a time, if no record is larger: about 1 ms

_log = structlog.get_logger()


class Scrub:
    """Scrubs the log of one store, from the last process's position on.

    Args:
        store: The store.
        hours: The duration of one round.

    Attributes:
        offset: The log offset reached.
        rounds: The number of times that it has reached the log's end.
        on_rot: Called with the log offset of a damaged record; tells whether it was repaired.
            None in a broker without replicas, which has no other copy.
    """

    def __init__(self, store: MessageStore, *, hours: float) -> None:
        self.offset = store.log_min_offset
        self.rounds = 0
        self.on_rot: Callable[[int], Awaitable[bool]] | None = None
        self._store = store
        self._repaired_at = -1  # log offset of the last record that was repaired
        self._steps = hours * 3600 / STEP_SECONDS  # of one round
        self._credit = 0.0  # bytes that may be read
        self._size_needed = 0
        self._found = 0  # damaged records, in this round
        self._found_before = 0  # … in the last one
        self._steps_to_save: float | None = None  # None: the saved position is not read yet

    @property
    def damaged_count(self) -> int:
        """The number of records of the log that are known to be damaged."""
        return max(self._found, self._found_before)

    async def step(self) -> None:
        """Read as much as fits between two steps."""
        if self._steps_to_save is None:
            await self._resume()
        await self._go_on()
        await self._save_in_time()

    async def _go_on(self) -> None:
        store = self._store
        self._credit += (store.flushed_offset - store.log_min_offset) / self._steps
        while self._credit > 0:
            self.offset = max(self.offset, store.log_min_offset)  # retention may have passed it
            if self.offset >= store.flushed_offset:
                self._end_round()
                return
            self._credit -= await self._read_on()

    async def _resume(self) -> None:
        """Continue at the last process's position, if the log is still the same."""
        store = self._store
        saved = await asyncio.to_thread(read_progress, store.directory)
        self._steps_to_save = 0
        if saved is None or saved.log_offset > store.flushed_offset:
            return
        self._found, self._found_before = saved.found, saved.found_before
        self.offset = max(saved.log_offset, store.log_min_offset)
        if store.log_min_offset < self.offset < store.flushed_offset:
            file = store.log.file(self.offset)
            # A log from a backup may differ; the middle of a record would look like damage.
            if not await asyncio.to_thread(_begins_record, file, self.offset - file.base_offset):
                self.offset = file.base_offset

    async def _save_in_time(self) -> None:
        assert self._steps_to_save is not None
        self._steps_to_save -= 1
        if self._steps_to_save <= 0:
            self._steps_to_save = SAVE_SECONDS / STEP_SECONDS
            progress = Progress(self.offset, self._found, self._found_before)
            with suppress(OSError):  # a full disk is reported elsewhere
                await asyncio.to_thread(write_progress, self._store.directory, progress)

    def _end_round(self) -> None:
        self.offset = self._store.log_min_offset
        self.rounds += 1
        self._found_before, self._found = self._found, 0
        self._repaired_at = -1
        self._credit = min(self._credit, 0)

    async def _read_on(self) -> int:
        """Examine the next stretch; return its size."""
        store, offset = self._store, self.offset
        file = store.log.file(offset)
        end = min(file.end_offset, store.flushed_offset)
        size = min(max(STRETCH_SIZE, self._size_needed), end - offset)
        try:
            stretch = await asyncio.to_thread(_read, file.path, offset - file.base_offset, size)
            examined = examine(stretch, offset, file.end_offset, end)
        except OSError as error:
            if offset < store.log_min_offset:
                return 0  # retention has deleted it meanwhile
            fault = f"{error.strerror}; the segment's rest cannot be read"
            examined = Examined(file.end_offset, 0, fault, offset)
        if examined.damage is not None:
            if await self._is_repaired(examined.damaged_at):
                self.offset = self._repaired_at = examined.damaged_at  # verify it, and go on behind
                self._size_needed = 0
                return size
            self._tell(examined, file.path)
        self.offset, self._size_needed = examined.next_offset, examined.size_needed
        return size

    async def _is_repaired(self, log_offset: int) -> bool:
        if self.on_rot is None or log_offset == self._repaired_at:
            return False  # repaired, and damaged again: the disk does not keep it
        return await self.on_rot(log_offset)

    def _tell(self, examined: Examined, path: Path) -> None:
        self._found += 1
        _log.error(
            "a record of the log is damaged",
            log_offset=examined.damaged_at,
            file=str(path),
            fault=examined.damage,
            fix="check the disk; stop the broker and restore the file from a backup",
        )


def _begins_record(file: LogFile, position: int) -> bool:
    at = RecordLayout.LOG_OFFSET
    try:
        own_offset = _read(file.path, position, RecordLayout.SYS_FLAG)[at:]
    except OSError:
        return False  # the round will find it
    return int.from_bytes(own_offset) == file.base_offset + position


def _read(path: Path, position: int, size: int) -> bytes:
    # A descriptor of its own: the store may close its one meanwhile, and its number be reused.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = os.pread(descriptor, size, position)
    finally:
        os.close(descriptor)
    if len(found) < size:
        raise OSError(errno.EIO, "the file is shorter than it was")
    return found
