"""The answer that carries an export: checked first, then streamed at the reader's pace.

What can be known before the first row is told as a problem. What goes wrong later cannot be: the
stream is then cut, so that the connection ends without the last chunk, and Arrow's stream without
its end marker. The reader goes on from the first row it has not got.

Memory: for each export one block in use, one that is being fetched, and one piece that the
connection has not taken yet.

Concurrency rule: blocks are turned into bytes in threads, one step of an export at a time. When the
client leaves, the service stops, or something fails, whatever is under way is given up and waited
for, before the slot is free again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

import structlog
from fastapi import Response
from starlette.types import Receive, Scope, Send

from eruca.contract.errors import ErucaError
from eruca.contract.exports import EXPORT_ROWS_HEADER, ExportRange
from eruca.contract.records import DamagedRecordError
from eruca_query.exports.encoders import RowEncoder
from eruca_query.exports.message_batches import message_batches
from eruca_query.exports.range_reader import Block, RangeReader
from eruca_query.exports.slots import ExportSlots

_FAILURES: Final = (ErucaError, DamagedRecordError)

_log = structlog.get_logger()


class _Piece(NamedTuple):
    """Some of the answer."""

    data: bytes
    rows: int


class ExportResponse(Response):
    """Sends the rows of ranges.

    Args:
        slots: Where it is one of those that run.
        reader: Reads the ranges.
        topic: Whose they are.
        rows: How many there are.
        columns: Which columns.
        encoder: Makes bytes of them; used up.
    """

    def __init__(
        self,
        slots: ExportSlots,
        reader: RangeReader,
        *,
        topic: str,
        rows: int,
        columns: Sequence[str],
        encoder: RowEncoder,
    ) -> None:
        super().__init__(headers={EXPORT_ROWS_HEADER: str(rows)}, media_type=encoder.media_type)
        del self.headers["content-length"]  # of no body; nobody knows the stream's
        self._slots = slots
        self._reader = reader
        self._topic = topic
        self._columns = columns
        self._encoder = encoder

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._slots.slot():
            await self._reader.check()
            async with aclosing(self._pieces()) as pieces:
                first = await anext(pieces)
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
        self, first: _Piece, pieces: AsyncGenerator[_Piece, None], send: Send
    ) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        await self._send(first, send)
        try:
            async for piece in pieces:
                await self._send(piece, send)
        except _FAILURES as error:
            self._slots.cut += 1
            _log.warning("export cut", topic=self._topic, why=str(error))
            return  # the answer is not complete, so the server closes the connection
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, piece: _Piece, send: Send) -> None:
        await send({"type": "http.response.body", "body": piece.data, "more_body": True})
        self._slots.rows += piece.rows
        self._slots.bytes += len(piece.data)

    async def _pieces(self) -> AsyncGenerator[_Piece, None]:
        async with aclosing(self._reader.blocks()) as blocks:
            async for block in blocks:
                steps = self._encoded(block)
                while (
                    piece := await self._slots.in_thread(partial(next, steps, None))
                ) is not None:
                    yield piece
        yield _Piece(await self._slots.in_thread(self._encoder.end), 0)

    def _encoded(self, block: Block) -> Iterator[_Piece]:
        offset = block.from_offset
        for batch in message_batches(
            self._topic,
            block.broker_name,
            block.pulled.records,
            block.pulled.sizes,
            self._columns,
            first_offset=offset,
        ):
            covered = ExportRange(
                broker_name=block.broker_name,
                queue_id=block.queue_id,
                from_offset=offset,
                to_offset=offset + batch.num_rows,
            )
            offset = covered.to_offset
            yield _Piece(self._encoder.add(batch, covered), batch.num_rows)


async def _gone(receive: Receive) -> None:
    """Return once the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
