"""``python -m eruca_query.exports.workers.worker FD``: does steps until the service is gone.

The service is at the other end of the socket *FD*. When that end closes, however the service ended,
the worker ends too; Ctrl-C, which a terminal sends to both, is the service's to act on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from functools import lru_cache
from typing import Final

import pyarrow as pa
import uvloop

from eruca.aio.http1 import Http1Transport
from eruca.aio.transport import HttpTransport, problem_error
from eruca.contract.errors import BrokerUnreachableError, ErucaError
from eruca.contract.records import DamagedRecordError
from eruca.contract.wire import RECORDS_MEDIA_TYPE, MalformedRecordsError
from eruca_chassis.process import freeze_start_up_objects, keep_freed_memory
from eruca_query.exports.broker_errors import naming
from eruca_query.exports.rows.blocks import Block, PulledBlock, decode_block
from eruca_query.exports.rows.encoders import RowEncoder
from eruca_query.exports.rows.message_batches import rows_of
from eruca_query.exports.workers.steps import (
    WORD_SIZE,
    Damaged,
    Refused,
    RowForm,
    Rows,
    Step,
    Taken,
    Word,
    decode_step,
    encode,
)

_HEADERS: Final = (("accept", RECORDS_MEDIA_TYPE),)
_ENCODERS_MAX: Final = 64
NICENESS: Final = 5  # a third of the processor where others want it, too


class Worker:
    """Does what the service tells it: many pulls at a time, but one batch.

    So a broker that is slow to answer keeps nobody waiting but those who want its messages.

    Args:
        channel: To the service; does not block.
        transport: Carries the pulls.
    """

    def __init__(self, channel: socket.socket, transport: HttpTransport) -> None:
        self._channel = channel
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()  # to say something

    async def work(self) -> None:
        """Do steps until the service has ended."""
        try:
            async with asyncio.TaskGroup() as steps:
                while True:
                    (size,) = WORD_SIZE.unpack(await self._read(WORD_SIZE.size))
                    steps.create_task(self._answer(decode_step(await self._read(size))))
        except* ConnectionError:
            pass  # it has

    async def _answer(self, step: Step) -> None:
        try:
            await self._do(step)
        except ErucaError as error:
            await self._tell(
                Refused(step.number, error.status, error.problem(), error.retry_after_seconds)
            )
        except DamagedRecordError as error:
            await self._tell(Damaged(step.number, str(error)))

    async def _do(self, step: Step) -> None:
        pulled = await self._pull(step)
        offsets = pulled.min_offset, pulled.max_offset
        if not len(pulled.sizes):
            await self._tell(Taken(step.number, pulled.status, 0, *offsets))
            return
        block = Block(step.broker_name, step.queue_id, step.offset, pulled.sizes, pulled.records)
        rows = rows_of(block, step.topic, step.form.columns)
        await self._tell(Taken(step.number, pulled.status, rows.count, *offsets))
        data = _encoder(step.form).rows(rows.batch(), block.first(rows.count))
        await self._tell(Rows(step.number, len(data)), data)

    async def _pull(self, step: Step) -> PulledBlock:
        with naming(step.broker_name):
            answer = await self._transport.request(
                "GET", step.url, step.target, headers=_HEADERS, timeout=step.timeout
            )
            if answer.status != 200:
                raise problem_error(answer, f"GET {step.url}{step.target}")
        try:
            return decode_block(answer.body)
        except MalformedRecordsError as error:
            raise BrokerUnreachableError(
                f"what broker {step.broker_name} answers is no pull: {error}"
            ) from error

    async def _tell(self, word: Word, data: bytes = b"") -> None:
        async with self._turn:
            await self._loop.sock_sendall(self._channel, encode(word))
            if data:
                await self._loop.sock_sendall(self._channel, data)

    async def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = await self._loop.sock_recv(self._channel, size - len(data))
            if not piece:
                raise ConnectionResetError("the service has ended")
            data += piece
        return data


@lru_cache(maxsize=_ENCODERS_MAX)
def _encoder(form: RowForm) -> RowEncoder:
    return form.encoder()


async def _work(channel: socket.socket) -> None:
    transport = Http1Transport()
    try:
        await Worker(channel, transport).work()
    finally:
        await transport.close()


def main() -> None:
    """Be a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)  # whoever asks for a message is not to wait for tables
    keep_freed_memory()
    pa.set_cpu_count(1)  # there are more workers
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.settimeout(0)
    freeze_start_up_objects()
    uvloop.run(_work(channel))


if __name__ == "__main__":
    main()
