"""The service's workers: processes that are started on demand, and restarted after a crash.

A step goes to the worker with the fewest in progress; :mod:`.steps` describes a step's states.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Final, TypeVar

import msgspec
import structlog

from eruca.contract.errors import ErucaError, UnavailableError, error_of_problem
from eruca.contract.records import DamagedRecordError
from eruca_chassis.asgi import ClientGoneError
from eruca_chassis.connections.exchange import defect
from eruca_chassis.finishing import finished
from eruca_chassis.logging import LogLevel, LogStyle
from eruca_query.exports.workers.channel import Channel
from eruca_query.exports.workers.steps import (
    Damaged,
    Failed,
    Forget,
    Made,
    Order,
    ReaderGone,
    Refused,
    Send,
    Sent,
    Step,
    Taken,
    decode_report,
    encode,
)

RETRY_AFTER_SECONDS: Final = 1.0
_END_SECONDS: Final = 5.0  # for a worker to exit by itself
_MODULE: Final = "eruca_query.exports.workers.worker"

_T = TypeVar("_T")
_log = structlog.get_logger()


class RowsUnderWay:
    """One step in progress, and its outcome."""

    def __init__(self, number: int, tell: Callable[[Order, socket.socket | None], None]) -> None:
        loop = asyncio.get_running_loop()
        self._number = number
        self._tell = tell
        self._taken: asyncio.Future[Taken] = loop.create_future()
        self._made: asyncio.Future[None] = loop.create_future()
        self._sent: asyncio.Future[int] = loop.create_future()

    @property
    def has_ended(self) -> bool:
        """True if the worker has finished with the step."""
        return self._sent.done()

    async def taken(self) -> Taken:
        """Return the messages taken, once they have arrived."""
        return await self._taken

    async def made(self) -> None:
        """Return once their rows are built."""
        await self._made

    async def send(self, connection: socket.socket) -> int:
        """Have the worker send the rows to *connection*; return their size in bytes.

        Raises:
            ClientGoneError: The reader has left.
        """
        await self._made
        if not self.has_ended:  # else the message would go to a process that replaced a dead one
            self._tell(Send(self._number), connection)
        return await self._sent

    def forget(self) -> None:
        """Let the worker drop the step, unless it has ended."""
        if not self.has_ended:
            self._sent.cancel()
            self._tell(Forget(self._number), None)

    # --- The worker's messages --------------------------------------------------------------------

    def take(self, taken: Taken) -> None:
        """Set the messages taken."""
        _settle(self._taken, taken)
        if not taken.count:
            _settle(self._made, None)
            _settle(self._sent, 0)

    def make(self) -> None:
        """Set that the rows are built."""
        _settle(self._made, None)

    def end(self, size: int) -> None:
        """Set that the rows have been sent."""
        _settle(self._sent, size)

    def fail(self, error: Exception) -> None:
        """Set the reason why there are no messages, no rows, or no reader."""
        for future in (self._taken, self._made, self._sent):
            if not future.done():
                future.set_exception(error)
                future.exception()  # mark it as retrieved: there may be no waiter any more


class ExportWorkers:
    """Runs steps in worker processes.

    Args:
        count: The number of workers.
        log_level: The level of their logs …
        log_style: … and the style: those of the service.
    """

    def __init__(self, count: int, *, log_level: LogLevel, log_style: LogStyle) -> None:
        self._workers = [_Worker((log_level, log_style)) for _ in range(count)]

    @property
    def step_count(self) -> int:
        """The number of steps in progress."""
        return sum(worker.step_count for worker in self._workers)

    @property
    def process_ids(self) -> list[int]:
        """The ids of the running workers."""
        return [worker.process.pid for worker in self._workers if worker.process is not None]

    async def begin(self, step: Step) -> RowsUnderWay:
        """Begin *step*; return once its messages have arrived, while the rows are being built.

        Raises:
            UnavailableError: The broker does not answer, or the worker died.
            DamagedRecordError: The broker's answer does not contain the expected records.
        """
        worker = min(self._workers, key=lambda its: (its.step_count, not its.is_running))
        rows = await worker.begin(step)
        try:
            await rows.taken()
        except BaseException:
            rows.forget()
            raise
        return rows

    async def close(self) -> None:
        """End all workers."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))


class _Worker:
    """One worker, seen from the service; *arguments* follow the socket on its command line."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self.process: Process | None = None
        self._channel: Channel | None = None
        self._starting = asyncio.Lock()
        self._waiting_count = 0  # steps that wait for that
        self._numbers = itertools.count()
        self._steps: dict[int, RowsUnderWay] = {}  # in progress, by number

    @property
    def is_running(self) -> bool:
        """True if there is a process."""
        return self._channel is not None

    @property
    def step_count(self) -> int:
        """The number of steps in progress."""
        return self._waiting_count + len(self._steps)

    async def begin(self, step: Step) -> RowsUnderWay:
        """Send it a step; start it first if it is not running.

        Raises:
            UnavailableError: The process cannot be started, or has just died.
        """
        self._waiting_count += 1
        try:
            await finished(asyncio.ensure_future(self._start()))
        finally:
            self._waiting_count -= 1
        if self._channel is None:
            raise _died()
        number = next(self._numbers)
        rows = self._steps[number] = RowsUnderWay(number, self._tell)
        self._tell(msgspec.structs.replace(step, number=number), None)
        return rows

    async def _start(self) -> None:
        async with self._starting:
            if self._channel is not None:
                return
            await self.stop()  # clean up after a dead process
            try:
                ours = await self._spawn()
            except OSError as error:
                raise UnavailableError(
                    f"no worker can be started: {error}",
                    retry_after_seconds=RETRY_AFTER_SECONDS,
                ) from error
            # Its later log lines do not belong to the request that happens to start it.
            self._channel = Context().run(Channel, ours, self._hear, self._lost)

    async def _spawn(self) -> socket.socket:
        """Start the process; return our end of the channel to it."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            try:
                self.process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", _MODULE, str(its.fileno()), *self._arguments,
                    pass_fds=[its.fileno()], stdin=DEVNULL, stdout=sys.stderr,
                )  # fmt: skip
            except BaseException:
                ours.close()
                raise
        return ours

    async def stop(self) -> None:
        """End the process, if there is one."""
        if self._channel is not None:
            self._channel.close()
            self._end_all()
        if self.process is None:
            return
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        self.process = None

    def _tell(self, order: Order, lent: socket.socket | None) -> None:
        if isinstance(order, Forget):
            self._steps.pop(order.number, None)
        if self._channel is not None:
            self._channel.tell(encode(order), lent)

    def _lost(self) -> None:
        _log.warning("an export worker died", pid=self.process and self.process.pid)
        self._end_all()

    def _end_all(self) -> None:
        self._channel = None
        steps, self._steps = self._steps, {}
        for rows in steps.values():
            rows.fail(_died())

    def _hear(self, data: bytes, _lent: socket.socket | None) -> None:
        report = decode_report(data)
        rows = self._steps.get(report.number)
        if rows is None:
            return  # the step was forgotten
        match report:
            case Taken():
                rows.take(report)
            case Made():
                rows.make()
            case Sent():
                rows.end(report.size)
            case ReaderGone():
                rows.fail(ClientGoneError())
            case Refused():
                rows.fail(_error_of(report))
            case Damaged():
                rows.fail(DamagedRecordError(report.detail))
            case Failed():
                rows.fail(defect())
        if rows.has_ended:
            del self._steps[report.number]


def _settle(future: asyncio.Future[_T], value: _T) -> None:
    if not future.done():  # its waiter may have been cancelled
        future.set_result(value)


def _error_of(refused: Refused) -> ErucaError:
    return error_of_problem(
        refused.problem, refused.status, retry_after_seconds=refused.retry_after_seconds
    )


def _died() -> ErucaError:
    return UnavailableError(
        "the worker that built the rows died; the service starts another one",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
