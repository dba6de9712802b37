"""Files whose pages are not in memory, until a thread has read them: a disk that tests hold up.

The system's page cache cannot be emptied for sure on every file system. So the two questions to the
kernel, and the read in a thread, are replaced; everything between them is the broker's own.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from eruca_broker.store.files import residency
from eruca_broker.store.files.residency import Mapped, Stretch
from eruca_broker.store.reading import cold_reads
from eruca_chassis.connections.exchange import PostponedError

PAGE_SIZE = 4096
T = TypeVar("T")


class ColdFiles:
    """Pages that have been read, and a disk that waits until :meth:`let_read`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: list[list[Stretch]] = []
        self.fault: OSError | None = None  # of every read
        self.is_forgetful = False  # pages leave memory at once
        self._warm: set[tuple[str, int]] = set()
        self._may_read = threading.Event()
        self.has_begun = threading.Event()
        monkeypatch.setattr(Mapped, "missing", lambda *asked: self._missing(*asked))
        monkeypatch.setattr(residency, "read_now", self._read_now)
        monkeypatch.setattr(cold_reads, "bring", self._bring)

    def let_read(self) -> None:
        """Let the disk read, from now on at once."""
        self._may_read.set()

    def hold(self) -> None:
        """Let the disk wait again."""
        self._may_read.clear()
        self.has_begun.clear()

    async def asked(self) -> None:
        """Return once the disk has been asked to read."""
        await asyncio.to_thread(self.has_begun.wait)

    def _is_warm(self, stretch: Stretch) -> bool:
        pages = range(stretch.begin // PAGE_SIZE, -(-stretch.end // PAGE_SIZE))
        return all((stretch.path, page) in self._warm for page in pages)

    def _missing(self, mapped: Mapped, begin: int, end: int) -> list[Stretch]:
        stretch = Stretch(mapped.path, begin, end)
        return [stretch] if residency.is_attempting() and not self._is_warm(stretch) else []

    def _read_now(self, descriptor: int, data: bytearray, position: int) -> int:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if not self._is_warm(Stretch(path, position, position + len(data))):
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        return os.preadv(descriptor, (data,), position)

    def _bring(self, stretches: list[Stretch], _ahead: int) -> int:
        self.reads.append(stretches)
        self.has_begun.set()
        self._may_read.wait()
        if self.fault is not None:
            raise self.fault
        for path, begin, end in stretches:
            if not self.is_forgetful:
                self._warm |= {(path, p) for p in range(begin // PAGE_SIZE, -(-end // PAGE_SIZE))}
        return sum(end - begin for _, begin, end in stretches)


async def in_the_end(step: Callable[[], T]) -> T:
    """Return the result of a step, which is run again as often as it is postponed."""
    while True:
        try:
            return step()
        except PostponedError as error:
            fault = await postponed(error)
        assert fault is None


async def postponed(error: PostponedError) -> BaseException | None:
    """Return once a postponed step may run again; return why it cannot."""
    over: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    error.start(lambda: over.set_result(None), over.set_result)
    return await over
