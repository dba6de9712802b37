"""The answer that carries an export: checked first, then streamed at the reader's pace.

Errors before the first row are problem documents. After a later error the stream is cut: the
connection ends without the last chunk, and an Arrow stream without its end marker. The reader
continues from the first row that it has not received.

The rows do not pass through this process. Workers build them and send them, one after the other,
when told to; between the head of the answer and its end they borrow the connection.

Memory: per export the rows that are being sent and the next ones, in the workers.

Concurrency rule: when the client leaves, the service stops, or something fails, all work under way
is cancelled. The slot is free only after that work has ended, as far as it runs in this process.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from typing import Final

import structlog
from fastapi import Response
from starlette.types import Receive, Scope, Send

from eruca.contract.errors import ErucaError
from eruca.contract.exports import EXPORT_ROWS_HEADER
from eruca.contract.records import DamagedRecordError
from eruca_chassis.admission.gate import ACCESS_KEY, OPEN, Quota
from eruca_chassis.asgi import ClientGoneError
from eruca_chassis.connections.lending import Lender, lender_of
from eruca_query.exports.made_ahead import made_ahead
from eruca_query.exports.range_reader import RangeReader, RangeRows
from eruca_query.exports.rows.encoders import RowEncoder
from eruca_query.exports.slots import ExportSlots

STEPS_AHEAD: Final = 2  # enough to keep one export busy: each further step costs three megabytes
_FAILURES: Final = (ErucaError, DamagedRecordError, ClientGoneError)

_log = structlog.get_logger()


class ExportResponse(Response):
    """Sends the rows of ranges.

    Args:
        slots: Limits the number of concurrent exports.
        reader: Reads the ranges.
        topic: The topic of the ranges.
        rows: The number of rows.
        encoder: Of the same form as the reader's rows.
    """

    def __init__(
        self,
        slots: ExportSlots,
        reader: RangeReader,
        *,
        topic: str,
        rows: int,
        encoder: RowEncoder,
    ) -> None:
        super().__init__(headers={EXPORT_ROWS_HEADER: str(rows)}, media_type=encoder.media_type)
        del self.headers["content-length"]  # that of an empty body; the stream's is unknown
        self._slots = slots
        self._reader = reader
        self._topic = topic
        self._encoder = encoder
        self._quota: Quota | None = None  # of the caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        self._quota = scope.get(ACCESS_KEY, OPEN).quota
        with self._slots.slot(), closing(self._reader):
            await self._reader.check()
            lender = lender_of(scope)
            if lender is None:
                await self._begin(send)
                await send({"type": "http.response.body", "body": b""})
                return
            async with aclosing(self._rows()) as rows:
                first = await anext(rows, None)
                if first is not None:
                    await first.under_way.made()
                self._slots.check_running()  # up to here, errors become problem documents
                stream = asyncio.create_task(self._send_all(lender, first, rows, send))
                gone = asyncio.create_task(_gone(receive))
                with self._slots.stoppable(stream):
                    try:
                        await asyncio.wait((stream, gone), return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        stream.cancel()
                        gone.cancel()
                        await asyncio.wait((stream, gone))
            if stream.cancelled():
                self._slots.cut += 1
            else:
                stream.result()

    async def _rows(self) -> AsyncGenerator[RangeRows, None]:
        rows_to_come = self._reader.rows()
        for _ in range(STEPS_AHEAD):
            rows_to_come = made_ahead(rows_to_come)
        async with aclosing(rows_to_come) as stretches:
            async for rows in stretches:
                yield rows

    async def _send_all(
        self,
        lender: Lender,
        first: RangeRows | None,
        others: AsyncGenerator[RangeRows, None],
        send: Send,
    ) -> None:
        await self._begin(send)
        begin, end = self._encoder.begin(), self._encoder.end()
        await send({"type": "http.response.body", "body": begin, "more_body": True})
        try:
            if first is not None:
                await self._send_rows(lender, first, others)
        except _FAILURES as error:
            self._slots.cut += 1
            _log.warning("export cut", topic=self._topic, why=str(error) or "the reader left")
            return  # the answer is incomplete, so the server closes the connection
        await send({"type": "http.response.body", "body": end})

    async def _begin(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )

    async def _send_rows(
        self, lender: Lender, first: RangeRows, others: AsyncGenerator[RangeRows, None]
    ) -> None:
        async with lender.lent() as connection:
            await self._send(first, connection)
            async for rows in others:
                await self._send(rows, connection)

    async def _send(self, rows: RangeRows, connection: socket.socket) -> None:
        sent = await rows.under_way.send(connection)
        self._slots.bytes += sent
        if self._quota is not None:
            self._quota.sent(time.monotonic(), sent)
        self._slots.rows += rows.count


async def _gone(receive: Receive) -> None:
    """Return once the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
