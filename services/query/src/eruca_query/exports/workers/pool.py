"""The service's workers: processes that are started when they are needed, and again when they died.

A worker makes one batch of rows at a time, and pulls the messages for others meanwhile; a step goes
to the worker with the fewest under way. What is under way is ended by the worker, whether or not
anybody still wants to hear of it: a reader that leaves costs that, and no process.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from typing import Final, cast

import msgspec
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
    """Does steps.

    Args:
        count: How many workers there are.
    """

    def __init__(self, count: int) -> None:
        self._workers = [_Worker() for _ in range(count)]

    @property
    def step_count(self) -> int:
        """How many steps are under way."""
        return sum(worker.step_count for worker in self._workers)

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
        worker = min(self._workers, key=lambda its: (its.step_count, not its.is_running))
        rows = await worker.begin(step)
        await rows.taken()
        return rows

    async def close(self) -> None:
        """End all workers."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))


class _Worker(asyncio.Protocol):
    """One worker, seen from the service."""

    def __init__(self) -> None:
        self.process: Process | None = None
        self._transport: asyncio.Transport | None = None
        self._starting = asyncio.Lock()
        self._waiting_count = 0  # steps that wait for that
        self._numbers = itertools.count()
        self._steps: dict[int, RowsUnderWay] = {}  # under way, by their numbers
        self._heard = bytearray()  # a part of a word
        self._data: list[bytes] = []  # rows, of which more are to come …
        self._missing = 0  # … so many bytes
        self._making = 0  # … of this step

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._transport is not None

    @property
    def step_count(self) -> int:
        """How many steps are under way."""
        return self._waiting_count + len(self._steps)

    async def begin(self, step: Step) -> RowsUnderWay:
        """Tell it a step, for which it is started if it is not running.

        Raises:
            UnavailableError: The machine refuses to start it, or it has just died.
        """
        self._waiting_count += 1
        try:
            await finished(asyncio.ensure_future(self._start()))
        finally:
            self._waiting_count -= 1
        if self._transport is None:
            raise _died()
        number = next(self._numbers)
        rows = self._steps[number] = RowsUnderWay(asyncio.get_running_loop())
        self._transport.write(encode(msgspec.structs.replace(step, number=number)))
        return rows

    async def _start(self) -> None:
        async with self._starting:
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
                        f"no worker can be started: {error}",
                        retry_after_seconds=RETRY_AFTER_SECONDS,
                    ) from error
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=ours)

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
        self._data = []
        self._missing = 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Hear that the process has ended, or is to end."""
        if self._transport is not None:
            self._transport = None
            _log.warning("an export worker died", pid=self.process and self.process.pid)
        for number in tuple(self._steps):
            self._end(number, _died())

    def data_received(self, data: bytes) -> None:
        """Take some of what it says."""
        while data:
            data = self._take_rows(data) if self._missing else self._take_word(data)

    def _take_word(self, data: bytes) -> bytes:
        """Hear a word once all of it is there; return what is behind it."""
        self._heard += data
        if len(self._heard) < WORD_SIZE.size:
            return b""
        (size,) = WORD_SIZE.unpack_from(self._heard)
        end = WORD_SIZE.size + size
        if len(self._heard) < end:
            return b""
        word = decode_word(self._heard[WORD_SIZE.size : end])
        rest = bytes(self._heard[end:])
        self._heard.clear()
        self._hear(word)
        return rest

    def _take_rows(self, data: bytes) -> bytes:
        """Keep rows, and hand them on once all of them are there; return what is behind them."""
        rows, rest = data[: self._missing], data[self._missing :]
        self._data.append(rows)
        self._missing -= len(rows)
        if not self._missing:
            made, self._data = self._data, []
            self._end(self._making, made)
        return rest

    def _hear(self, word: Word) -> None:
        match word:
            case Taken():
                self._steps[word.number].take(word)
                if not word.count:
                    self._end(word.number, [])
            case Rows():
                self._making, self._missing = word.number, word.size
            case Refused():
                self._end(word.number, _error_of(word))
            case Damaged():
                self._end(word.number, DamagedRecordError(word.detail))

    def _end(self, number: int, outcome: list[bytes] | Exception) -> None:
        rows = self._steps.pop(number)
        if isinstance(outcome, Exception):
            rows.fail(outcome)
        else:
            rows.make(outcome)


def _error_of(refused: Refused) -> ErucaError:
    return error_of_problem(
        refused.problem, refused.status, retry_after_seconds=refused.retry_after_seconds
    )


def _died() -> ErucaError:
    return UnavailableError(
        "the worker that made the rows died; the service starts another one",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
