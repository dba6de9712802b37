"""Cold reads: bytes that are not in memory are read in threads, and never by the event loop.

A read for a client is attempted (:mod:`eruca_broker.store.files.residency`). If it lacks bytes, it
waits for its turn (:mod:`eruca_broker.core.consuming.cold_turns`). A thread then reads them from
the files, and some bytes behind them, into the system's page cache. The read is attempted again,
and answers with the mapping as always::

    attempt ──has all──────────────────────────────► result
       ▲ └───lacks bytes──► wait for a turn ──► read in a thread ─┐
       └──────────────────────────────────────────────────────────┘

Bytes that are only in the tier (``store/tier``) are fetched from there instead, in turns of
their own: a slow object store delays no read of the disk.

Nothing else happens meanwhile: a read that waits is not answered, and never as if it were empty. If
the same bytes leave memory again and again before they can be used, the loop reads them itself,
which is counted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias, TypeVar

import structlog

from eruca.contract.errors import UnavailableError
from eruca_broker.core.consuming.cold_turns import ColdRates, ColdTurns
from eruca_broker.store.files.residency import NotInMemoryError, Stretch, attempt
from eruca_chassis.clock import Clock
from eruca_chassis.connections.exchange import PostponedError

THREADS: Final = 4  # reads in progress: enough to keep a disk busy, few beside the log's writer
FETCHES: Final = 8  # fetches from the tier in progress; each has a chunk in memory
AHEAD_SIZE: Final = 1024 * 1024  # bytes requested behind those that a reader in order lacks
TRIES_MAX: Final = 3  # reads of the same bytes for one request, before the loop reads them itself
_CHUNK_SIZE: Final = 256 * 1024  # bytes of one system call

Tries: TypeAlias = dict[tuple[Stretch, ...], int]
_T = TypeVar("_T")
_log = structlog.get_logger()


class _Read:
    """A cold read; *ended* is called once, with the fault if there was one."""

    def __init__(
        self, cold: NotInMemoryError, ahead: int, ended: Callable[[Exception | None], None]
    ) -> None:
        self.stretches = cold.stretches
        self.fetch = cold.fetch
        self.ahead = 0 if cold.fetch else ahead
        self._ended = ended
        self._is_over = False

    @property
    def size(self) -> int:
        """Bytes that its reader pays for."""
        return sum(end - begin for _, begin, end in self.stretches) + self.ahead

    def end(self, fault: Exception | None = None) -> None:
        """Tell the request that waits for it, unless that has happened."""
        if not self._is_over:
            self._is_over = True
            self._ended(fault)

    def leave(self) -> None:
        """Tell nobody: the request that waited is gone."""
        self._is_over = True


class _Lane:
    """Reads from one device: those that wait for a turn, and those in progress."""

    def __init__(self, rates: ColdRates, reads_max: int) -> None:
        self.turns: ColdTurns[_Read] = ColdTurns(rates)
        self.reads_max = reads_max
        self.reading: dict[_Read, asyncio.Future[int]] = {}
        self.timer: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        """Forget when the next read is due."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ColdReads:
    """Attempts reads of one store. All methods are called on the loop's thread."""

    def __init__(self, rates: ColdRates, clock: Clock) -> None:
        self.count = 0  # cold reads
        self.size = 0  # bytes of them, without those read ahead
        self.on_loop_count = 0  # reads that the event loop had to do
        self._clock = clock
        self._disk = _Lane(rates, THREADS)
        self._tier = _Lane(rates, FETCHES)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="cold-reads")
        self._begun: set[tuple[str, tuple[Stretch, ...]]] = set()  # for later attempts
        self._tries: Tries | None = None  # of the exchange whose step runs again
        self._is_closed = False

    @property
    def waiting_count(self) -> int:
        """Reads that wait for a turn, for the disk or for the tier."""
        return sum(len(lane.turns) + len(lane.reading) for lane in (self._disk, self._tier))

    def attempt(self, reader: str, read: Callable[[], _T], *, ahead: int = 0) -> _T:
        """Return the result of *read*, a step of an exchange.

        Args:
            reader: Pays for it, and takes turns with others.
            read: Changes nothing, since it may run several times.
            ahead: Bytes to request behind those that are missing, for a reader that goes on there.

        Raises:
            PostponedError: It needs bytes that are not in memory; the exchange runs the step again.
        """
        tries, self._tries = self._tries, None
        if tries is None:
            tries = {}
        try:
            return self.try_now(read, tries)
        except NotInMemoryError as cold:
            start = partial(self._postpone, (reader, cold, ahead), tries)
            raise PostponedError(start) from None

    async def read(self, reader: str, read: Callable[[], _T], *, ahead: int = 0) -> _T:
        """Return the result of *read*, as :meth:`attempt` does, for a coroutine.

        Raises:
            UnavailableError: The disk refuses to read a file.
        """
        tries: Tries = {}
        while True:
            try:
                return self.try_now(read, tries)
            except NotInMemoryError as cold:
                await self.bring(reader, cold, ahead=ahead)

    def try_now(self, read: Callable[[], _T], tries: Tries) -> _T:
        """Return the result of *read*, for a request that calls :meth:`bring` itself.

        Args:
            read: Changes nothing, since it may run several times.
            tries: The same for each try of a request; empty at first.

        Raises:
            NotInMemoryError: It needs bytes that are not in memory.
        """
        try:
            return attempt(read)
        except NotInMemoryError as cold:
            key = tuple(cold.stretches)
            tries[key] = tries.get(key, 0) + 1
            if not self._is_closed and tries[key] <= TRIES_MAX:
                raise
            if cold.fetch is None:
                self.on_loop_count += 1
        return read()  # what is only in the tier is refused then

    async def bring(self, reader: str, cold: NotInMemoryError, *, ahead: int = 0) -> None:
        """Return once the bytes that *cold* names have been read.

        Raises:
            UnavailableError: The disk refuses to read a file.
        """
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(fault: Exception | None) -> None:
            if arrived.done():
                return
            if fault is None:
                arrived.set_result(None)
            else:
                arrived.set_exception(fault)

        leave = self._ask(reader, _Read(cold, ahead, ended))
        try:
            await arrived
        finally:
            leave()

    def begin(self, reader: str, cold: NotInMemoryError, *, ahead: int = 0) -> None:
        """Read the bytes that *cold* names, for a later attempt; once at a time."""
        key = (reader, tuple(cold.stretches))
        if key not in self._begun and not self._is_closed:
            self._begun.add(key)
            self._ask(reader, _Read(cold, ahead, lambda _: self._begun.discard(key)))

    def close(self) -> None:
        """Let every read that waits go on, on the loop if need be: the store is closing."""
        self._is_closed = True
        waiting: list[_Read] = []
        for lane in (self._disk, self._tier):
            lane.stop_timer()
            waiting += [*lane.reading, *lane.turns.give_up()]
        for fetch in self._tier.reading.values():
            fetch.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for read in waiting:
            read.end()

    # --- Inside -----------------------------------------------------------------------------------

    def _postpone(
        self,
        place: tuple[str, NotInMemoryError, int],
        tries: Tries,
        again: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> Callable[[], object]:
        reader, cold, ahead = place

        def ended(fault: Exception | None) -> None:
            if fault is not None:
                failed(fault)
                return
            self._tries = tries
            try:
                again()
            finally:
                self._tries = None

        return self._ask(reader, _Read(cold, ahead, ended))

    def _ask(self, reader: str, read: _Read) -> Callable[[], object]:
        lane = self._disk if read.fetch is None else self._tier
        lane.turns.ask(reader, read, read.size)
        self._go_on(lane)

        def leave() -> None:
            read.leave()
            lane.turns.withdraw(reader, read)

        return leave

    def _go_on(self, lane: _Lane) -> None:
        """Begin the reads whose turn has come."""
        lane.stop_timer()
        loop = asyncio.get_running_loop()
        while len(lane.reading) < lane.reads_max:
            taken = lane.turns.take(self._clock.monotonic())
            if taken is None:
                due_in = lane.turns.due_in(self._clock.monotonic())
                if due_in is not None:
                    lane.timer = loop.call_later(due_in, self._go_on, lane)
                return
            reader, read = taken
            work: asyncio.Future[int]
            if read.fetch is None:
                self.count += 1
                work = loop.run_in_executor(self._pool, bring, read.stretches, read.ahead)
            else:
                work = loop.create_task(read.fetch())
            lane.reading[read] = work
            work.add_done_callback(partial(self._done, lane, reader, read))

    def _done(self, lane: _Lane, reader: str, read: _Read, work: asyncio.Future[int]) -> None:
        del lane.reading[read]
        if self._is_closed:
            if not work.cancelled():
                work.exception()  # it was told to go on
            return
        lane.turns.done(reader)
        error = work.exception()
        fault: Exception | None = None
        behind: list[_Read] = []
        if error is None:
            if read.fetch is None:
                self.size += work.result()
        elif isinstance(error, UnavailableError):
            fault = error
            if isinstance(error.__cause__, TimeoutError):
                behind = lane.turns.give_up()  # else each turn would wait for another timeout
        elif isinstance(error, OSError):
            _log.error("a file of the store cannot be read", file=error.filename, fault=str(error))
            fault = UnavailableError(
                f"a file of the store cannot be read: {error.strerror}",
                fix="check the broker's disk; the broker's log names the file",
            )
        else:
            raise error
        self._go_on(lane)
        for one in (read, *behind):
            one.end(fault)


def bring(stretches: list[Stretch], ahead: int) -> int:
    """Read stretches of files into the page cache; return their bytes. Waits for the disk.

    Raises:
        OSError: The disk refuses.
    """
    size = 0
    room = memoryview(bytearray(_CHUNK_SIZE))
    for path, begin, end in stretches:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # it was deleted meanwhile, which the next attempt will see
        try:
            position = begin
            while position < end:
                count = os.preadv(descriptor, (room[: end - position],), position)
                if not count:
                    break
                position += count
            size += position - begin
            if ahead:
                os.posix_fadvise(descriptor, end, ahead, os.POSIX_FADV_WILLNEED)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)
    return size
