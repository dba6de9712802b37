"""The service's workers: processes that are started when they are needed, and again when they died.

States of a worker: *off* (no process), *idle*, *busy* with one step. It is handed to the next step
that waits only when it has said everything about its last one, whether or not anybody still wants
to hear it: a reader that leaves costs what was under way, and no process.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from typing import Final, cast

import structlog

from eruca.contract.errors import ErucaError, UnavailableError, error_of_problem
from eruca.contract.records import DamagedRecordError
from eruca_chassis.finishing import finished
from eruca_query.exports.workers.steps import (
    WORD_SIZE,
    Damaged,
    Refused,
    Rows,
    Step,
    Taken,
    Word,
    decode_word,
    encode,
)

RETRY_AFTER_SECONDS: Final = 1.0
_END_SECONDS: Final = 5.0  # for a worker to end by itself
_MODULE: Final = "eruca_query.exports.workers.worker"

_log = structlog.get_logger()


class RowsUnderWay:
    """What comes of one step."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._taken: asyncio.Future[Taken] = loop.create_future()
        self._data: asyncio.Future[list[bytes]] = loop.create_future()

    async def taken(self) -> Taken:
        """Return what messages there are, once they are there."""
        return await self._taken

    async def data(self) -> list[bytes]:
        """Return their rows in pieces, once they are made."""
        return await self._data

    def take(self, taken: Taken) -> None:
        """Note what messages there are."""
        if not self._taken.done():
            self._taken.set_result(taken)

    def make(self, data: list[bytes]) -> None:
        """Note the rows."""
        if not self._data.done():
            self._data.set_result(data)

    def fail(self, error: Exception) -> None:
        """Note why there are no messages, or no rows."""
        for future in (self._taken, self._data):
            if not future.done():
                future.set_exception(error)
                future.exception()  # it is no matter where nobody waits for it any more


class ExportWorkers:
    """Does steps, as many at a time as there are workers, in the order in which they are told.

    Args:
        count: How many workers there are.
    """

    def __init__(self, count: int) -> None:
        self._idle: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        self._workers = [_Worker(self._idle.put_nowait) for _ in range(count)]
        for worker in self._workers:
            self._idle.put_nowait(worker)

    @property
    def busy_count(self) -> int:
        """How many are doing a step."""
        return sum(worker.is_busy for worker in self._workers)

    @property
    def process_ids(self) -> list[int]:
        """Of the workers that run."""
        return [worker.process.pid for worker in self._workers if worker.process is not None]

    async def begin(self, step: Step) -> RowsUnderWay:
        """Begin *step*; return once its messages are there, while the rows are being made.

        Raises:
            UnavailableError: The broker does not answer, or the worker died.
            DamagedRecordError: What it answers is not the records that it is to be.
        """
        worker = await self._idle.get()
        try:
            await finished(asyncio.ensure_future(worker.start()))
            rows = worker.begin(step)
        except BaseException:
            self._idle.put_nowait(worker)
            raise
        await rows.taken()
        return rows

    async def close(self) -> None:
        """End all workers."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))


class _Worker(asyncio.Protocol):
    """One worker, seen from the service; *on_idle* is told when it may be given a step."""

    def __init__(self, on_idle: Callable[[_Worker], None]) -> None:
        self.process: Process | None = None
        self._on_idle = on_idle
        self._transport: asyncio.Transport | None = None
        self._rows: RowsUnderWay | None = None  # of the step that it is busy with
        self._heard = bytearray()  # a part of what it says
        self._data: list[bytes] = []
        self._missing = 0  # bytes of data

    @property
    def is_busy(self) -> bool:
        """Whether it has not said everything about its last step."""
        return self._rows is not None

    async def start(self) -> None:
        """Start the process if it is off.

        Raises:
            UnavailableError: The machine refuses.
        """
        if self._transport is not None:
            return
        await self.stop()  # what is left of one that died
        ours, its = socket.socketpair()
        with its:
            try:
                self.process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", _MODULE, str(its.fileno()),
                    pass_fds=[its.fileno()], stdin=DEVNULL, stdout=sys.stderr,
                )  # fmt: skip
            except OSError as error:
                ours.close()
                raise UnavailableError(
                    f"no worker can be started: {error}", retry_after_seconds=RETRY_AFTER_SECONDS
                ) from error
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=ours)

    def begin(self, step: Step) -> RowsUnderWay:
        """Tell it a step; it is idle, and busy now."""
        assert self._rows is None
        rows = self._rows = RowsUnderWay(asyncio.get_running_loop())
        if self._transport is None:
            self._end(_died())
        else:
            self._transport.write(encode(step))
        return rows

    async def stop(self) -> None:
        """End the process, if there is one."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        if self.process is None:
            return
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        self.process = None

    # --- What it says -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the other end's."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._heard.clear()
        self._missing = 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Hear that the process has ended, or is to end."""
        if self._transport is not None:
            self._transport = None
            _log.warning("an export worker died", pid=self.process and self.process.pid)
        if self._rows is not None:
            self._end(_died())

    def data_received(self, data: bytes) -> None:
        """Take some of what it says."""
        if self._missing:
            self._take_data(data)
            return
        self._heard += data
        while (word := self._next_word()) is not None:
            self._hear(word)
            if self._missing:
                rest = bytes(self._heard)
                self._heard.clear()
                if rest:
                    self._take_data(rest)
                return

    def _next_word(self) -> Word | None:
        if len(self._heard) < WORD_SIZE.size:
            return None
        (size,) = WORD_SIZE.unpack_from(self._heard)
        end = WORD_SIZE.size + size
        if len(self._heard) < end:
            return None
        word: Word = decode_word(self._heard[WORD_SIZE.size : end])
        del self._heard[:end]
        return word

    def _hear(self, word: Word) -> None:
        assert self._rows is not None
        match word:
            case Taken(count=0):
                self._rows.take(word)
                self._end(None)
            case Taken():
                self._rows.take(word)
            case Rows(size):
                self._missing = size
            case Refused():
                self._end(_error_of(word))
            case Damaged(detail):
                self._end(DamagedRecordError(detail))

    def _take_data(self, data: bytes) -> None:
        self._data.append(data)
        self._missing -= len(data)
        if not self._missing:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        """Be idle again."""
        rows, self._rows = self._rows, None
        data, self._data = self._data, []
        assert rows is not None
        if error is None:
            rows.make(data)
        else:
            rows.fail(error)
        self._on_idle(self)


def _error_of(refused: Refused) -> ErucaError:
    return error_of_problem(
        refused.problem, refused.status, retry_after_seconds=refused.retry_after_seconds
    )


def _died() -> ErucaError:
    return UnavailableError(
        "the worker that made the rows died; the service starts another one",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
