"""The answer that carries an export: checked first, then streamed at the reader's pace.

What can be known before the first row is told as a problem. What goes wrong later cannot be: the
stream is then cut, so that the connection ends without the last chunk, and Arrow's without its end
marker. The reader goes on from the first row it has not got.

Memory: for each export the piece that is being sent, of which the connection takes a little at a
time, and the next ones, which workers make meanwhile.

Concurrency rule: when the client leaves, the service stops, or something fails, whatever is under
way is given up, and waited for as far as it is ours, before the slot is free again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, NamedTuple

import structlog
from fastapi import Response
from starlette.types import Receive, Scope, Send

from eruca.contract.errors import ErucaError
from eruca.contract.exports import EXPORT_ROWS_HEADER
from eruca.contract.records import DamagedRecordError
from eruca_query.exports.made_ahead import made_ahead
from eruca_query.exports.range_reader import RangeReader
from eruca_query.exports.rows.encoders import RowEncoder
from eruca_query.exports.slots import ExportSlots

STEPS_AHEAD: Final = 2  # what one export can keep busy: each further worker costs two megabytes
_FAILURES: Final = (ErucaError, DamagedRecordError)

_log = structlog.get_logger()


class _Piece(NamedTuple):
    """Some of the answer."""

    data: list[bytes]
    rows: int


class ExportResponse(Response):
    """Sends the rows of ranges.

    Args:
        slots: Where it is one of those that run.
        reader: Reads the ranges.
        topic: Whose they are.
        rows: How many there are.
        encoder: Of the form in which they are read.
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
        del self.headers["content-length"]  # of no body; nobody knows the stream's
        self._slots = slots
        self._reader = reader
        self._topic = topic
        self._encoder = encoder

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._slots.slot():
            await self._reader.check()
            async with aclosing(self._pieces()) as pieces:
                first = [await anext(pieces)]  # until here, errors are problems
                stream = asyncio.create_task(self._send_all(first, pieces, send))
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

    async def _send_all(
        self, first: list[_Piece], pieces: AsyncGenerator[_Piece, None], send: Send
    ) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        try:
            await self._send(first.pop(), send)  # not held any longer than the others
            async for piece in pieces:
                await self._send(piece, send)
        except _FAILURES as error:
            self._slots.cut += 1
            _log.warning("export cut", topic=self._topic, why=str(error))
            return  # the answer is not complete, so the server closes the connection
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, piece: _Piece, send: Send) -> None:
        for data in piece.data:
            await send({"type": "http.response.body", "body": data, "more_body": True})
            self._slots.bytes += len(data)
            await asyncio.sleep(0)  # other requests have their turn, however fast this one is read
        self._slots.rows += piece.rows

    async def _pieces(self) -> AsyncGenerator[_Piece, None]:
        begin = [self._encoder.begin()]
        rows_to_come = self._reader.rows()
        for _ in range(STEPS_AHEAD):
            rows_to_come = made_ahead(rows_to_come)
        async with aclosing(rows_to_come) as stretches:
            async for rows in stretches:
                yield _Piece([*begin, *await rows.under_way.data()], rows.count)
                begin = []
        yield _Piece([*begin, self._encoder.end()], 0)


async def _gone(receive: Receive) -> None:
    """Return once the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
