"""The answer that carries an export: checked first, then streamed at the reader's pace.

What can be known before the first row is told as a problem. What goes wrong later cannot be: the
stream is then cut, so that the connection ends without the last chunk, and Arrow's stream without
its end marker. The reader goes on from the first row it has not got.

Memory: for each export one block that is being fetched ahead, and one that is in use or the piece
that was made of it, of which the connection takes a little at a time.

Concurrency rule: blocks are turned into bytes in threads, one step of an export at a time. When the
client leaves, the service stops, or something fails, whatever is under way is given up and waited
for, before the slot is free again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

import structlog
from fastapi import Response
from starlette.types import Receive, Scope, Send

from eruca.contract.errors import ErucaError
from eruca.contract.exports import EXPORT_ROWS_HEADER
from eruca.contract.records import DamagedRecordError
from eruca_query.exports.blocks import Block
from eruca_query.exports.encoders import RowEncoder
from eruca_query.exports.message_batches import first_batch
from eruca_query.exports.range_reader import RangeReader
from eruca_query.exports.slots import ExportSlots

WRITE_SIZE: Final = 256 * 1024  # bytes that are handed to the connection, and copied, at a time
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
        view = memoryview(piece.data)
        for start in range(0, len(view), WRITE_SIZE):
            data = view[start : start + WRITE_SIZE]
            await send({"type": "http.response.body", "body": data, "more_body": True})
        self._slots.rows += piece.rows
        self._slots.bytes += len(view)

    async def _pieces(self) -> AsyncGenerator[_Piece, None]:
        async with aclosing(self._reader.blocks()) as blocks:
            async for block in blocks:
                rest: Block | None = block
                del block  # while a piece waits for its reader, nothing else is to be held
                while rest is not None:
                    piece, rest = await self._slots.in_thread(partial(self._encoded, rest))
                    yield piece
        yield _Piece(await self._slots.in_thread(self._encoder.end), 0)

    def _encoded(self, block: Block) -> tuple[_Piece, Block | None]:
        """Return the first of the block's messages as bytes, and what is left of it."""
        batch = first_batch(block, self._topic, self._columns)
        count = batch.num_rows
        return _Piece(self._encoder.add(batch, block.first(count)), count), block.behind(count)


async def _gone(receive: Receive) -> None:
    """Return once the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
