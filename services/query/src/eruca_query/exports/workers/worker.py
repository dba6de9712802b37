"""``python -m eruca_query.exports.workers.worker FD LEVEL STYLE``: runs steps for the service.

The service is at the other end of the socket *FD*; *LEVEL* and *STYLE* are those of its log. When
that end closes, however the service ended, the worker exits, too. It ignores Ctrl-C, which a
terminal sends to both: the service handles it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from functools import lru_cache
from typing import Final, cast

import msgspec
import pyarrow as pa
import structlog
import uvloop

from eruca.contract.errors import BrokerUnreachableError, ErucaError, NotMasterForSureError
from eruca.contract.exports import ExportRange
from eruca.contract.messages import PullAnswer
from eruca.contract.records import DamagedRecordError
from eruca.contract.wire import (
    RECORDS_MEDIA_TYPE,
    MalformedRecordsError,
    PullStatus,
    is_masters_word,
)
from eruca.rows.message_batches import Rows
from eruca.services.http import (
    HttpResponse,
    HttpTransport,
    credentials_of,
    http1_transport,
    problem_error,
)
from eruca_chassis.connections.lending import chunk_of
from eruca_chassis.logging import LogLevel, LogStyle, configure_logging
from eruca_chassis.running.process import freeze_start_up_objects, keep_freed_memory
from eruca_query.exports.broker_errors import RETRY_AFTER_SECONDS, naming
from eruca_query.exports.rows.blocks import Block, PulledBlock, decode_block
from eruca_query.exports.rows.damaged_rows import DamagedRow
from eruca_query.exports.rows.encoders import RowEncoder
from eruca_query.exports.rows.pulled_rows import rows_of
from eruca_query.exports.workers.channel import WORD_SIZE_MAX, Channel
from eruca_query.exports.workers.steps import (
    Damaged,
    Failed,
    Forget,
    Made,
    ReaderGone,
    Refused,
    Report,
    RowForm,
    Send,
    Sent,
    Step,
    Taken,
    decode_order,
    encode,
)

_JSON_MEDIA_TYPE: Final = "application/json"
_PULL_ANSWER: Final = msgspec.json.Decoder(PullAnswer)
_ENCODERS_MAX: Final = 64
_LOGGED_SIZE_MAX: Final = 1_000  # characters
NICENESS: Final = 15  # about a thirtieth of a processor that others need, too

_log = structlog.get_logger()


class Worker:
    """Does the service's steps: many pulls and many sends at a time, but one batch.

    So a broker that is slow to answer, or a reader that is slow to read, delays nobody but its own
    export.

    Args:
        end: The worker's end of the channel to the service.
        transport: Carries the pulls.
    """

    def __init__(self, end: socket.socket, transport: HttpTransport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._channel = Channel(end, self._hear, self._end.set)
        self._steps: dict[int, asyncio.Task[None]] = {}
        self._turns: dict[int, asyncio.Future[socket.socket]] = {}  # by step, once rows are built

    async def work(self) -> None:
        """Run steps until the service has ended."""
        await self._end.wait()
        steps = [*self._steps.values()]
        for step in steps:
            step.cancel()
        await asyncio.gather(*steps, return_exceptions=True)

    def _hear(self, data: bytes, lent: socket.socket | None) -> None:
        match decode_order(data):
            case Step() as step:
                doing = self._steps[step.number] = self._loop.create_task(self._answer(step))
                doing.add_done_callback(lambda _: self._steps.pop(step.number))
            case Send(number) if lent is not None:
                self._turns[number].set_result(lent)
            case Send(number):
                missing = OSError("the reader's connection did not arrive: too many open files")
                self._turns[number].set_exception(missing)
            case Forget(number):
                if number in self._steps:  # it may just have ended
                    self._steps[number].cancel()

    async def _answer(self, step: Step) -> None:
        number = step.number
        try:
            self._tell(await self._do(step))
        except ErucaError as error:
            self._tell(Refused(number, error.status, error.problem(), error.retry_after_seconds))
        except DamagedRecordError as error:
            self._tell(Damaged(number, str(error)))
        except Exception:  # the outermost frame of a step
            _log.exception("rows cannot be built", topic=step.topic, target=step.target)
            self._tell(Failed(number))

    async def _do(self, step: Step) -> Report:
        """Run the whole step, and return its last message."""
        pulled = await self._pull(step)
        offsets = pulled.min_offset, pulled.max_offset
        rows: Rows | DamagedRow
        if pulled.status is PullStatus.DAMAGED:
            if step.form.damaged == "refuse":
                return Taken(step.number, pulled.status, 0, *offsets, pulled.damage)
            rows, count = await self._damaged_row(step), 1
        elif len(pulled.sizes):
            rows = rows_of(
                Block(step.broker_name, step.queue_id, step.offset, pulled.sizes, pulled.records),
                step.topic,
                step.form.columns,
            )
            count = rows.count
        else:
            return Taken(step.number, pulled.status, 0, *offsets)
        self._tell(Taken(step.number, pulled.status, count, *offsets))
        covered = ExportRange(
            broker_name=step.broker_name,
            queue_id=step.queue_id,
            from_offset=step.offset,
            to_offset=step.offset + count,
        )
        pieces = _encoder(step.form).rows(rows, covered)
        data = chunk_of(pieces)
        del pulled, rows, pieces  # free the memory: their turn may be far away
        connection = await self._turn(step.number)
        with connection:
            try:
                await self._loop.sock_sendall(connection, data)
            except OSError:
                return ReaderGone(step.number)
        return Sent(step.number, len(data))

    async def _turn(self, number: int) -> socket.socket:
        """Report that rows are built; wait for their turn, and return the connection for them."""
        turn: asyncio.Future[socket.socket] = self._loop.create_future()
        self._turns[number] = turn
        self._tell(Made(number))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                turn.result().close()
            raise
        finally:
            del self._turns[number]

    async def _pull(self, step: Step) -> PulledBlock:
        answer = await self._answer_of(step, RECORDS_MEDIA_TYPE)
        try:
            pulled = decode_block(answer.body)
        except MalformedRecordsError as error:
            raise _no_pull(step, error) from error
        if not len(pulled.sizes) and not is_masters_word(answer.headers):
            # It may lack what the master has: a missing or damaged message is the master's word.
            raise NotMasterForSureError(
                f"broker {step.broker_name}: a replica that is not the master for sure lacks "
                f"offset {step.offset} of queue {step.queue_id}",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        return pulled

    async def _damaged_row(self, step: Step) -> DamagedRow:
        """Return the row of the damaged message at the step's offset.

        Only the broker's JSON form gives its place field by field.
        """
        answer = await self._answer_of(step, _JSON_MEDIA_TYPE)
        try:
            [message] = _PULL_ANSWER.decode(answer.body).messages[:1]
        except (msgspec.DecodeError, ValueError) as error:
            raise _no_pull(step, error) from error
        if message.damage is None or message.queue_offset != step.offset:
            raise BrokerUnreachableError(
                f"broker {step.broker_name} answers differently about offset {step.offset} of "
                f"queue {step.queue_id}: repeat the request",
            )
        return DamagedRow(step.broker_name, message, step.form.columns)

    async def _answer_of(self, step: Step, media_type: str) -> HttpResponse:
        headers = (("accept", media_type),)
        with naming(step.broker_name):
            answer = await self._transport.request(
                "GET", step.url, step.target, headers=headers, timeout=step.timeout
            )
            if answer.status != 200:
                raise problem_error(answer, f"GET {step.url}{step.target}")
        return answer

    def _tell(self, report: Report) -> None:
        data = encode(report)
        if len(data) > WORD_SIZE_MAX:  # no broker refuses at such length
            _log.error("a message is too long", word=repr(report)[:_LOGGED_SIZE_MAX])
            data = encode(Failed(report.number))
        self._channel.tell(data)


def _no_pull(step: Step, error: Exception) -> BrokerUnreachableError:
    return BrokerUnreachableError(f"broker {step.broker_name} did not answer with a pull: {error}")


@lru_cache(maxsize=_ENCODERS_MAX)
def _encoder(form: RowForm) -> RowEncoder:
    return form.encoder()


async def _work(end: socket.socket) -> None:
    transport = http1_transport(credentials_of(os.environ))
    try:
        await Worker(end, transport).work()
    finally:
        await transport.close()


def main() -> None:
    """Run the worker."""
    _, descriptor, level, style = sys.argv
    configure_logging("query", level=cast("LogLevel", level), style=cast("LogStyle", style))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)  # requests for messages take priority over exports
    keep_freed_memory()
    pa.set_cpu_count(1)  # several workers share the processors
    freeze_start_up_objects()
    uvloop.run(_work(socket.socket(fileno=int(descriptor))))


if __name__ == "__main__":
    main()
