"""Read rows in a thread, so that a slow pipe does not delay sending.

A row is handed over as soon as no further row is available. So ``tail -f app.log | eruca send``
sends each line when it is written, and a large file moves in batches.

Concurrency rule: one reading thread, limited by ``_BATCHES_AHEAD`` batches; everything else runs on
the event loop. The thread is a daemon with its own reader, because nothing can interrupt its read
from an idle terminal.
"""

from __future__ import annotations

import asyncio
import io
import os
import stat
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from eruca.cli.sending.rows import BadRow, Row, RowFields, RowFormat, rows_of

_READ_SIZE: Final = 256 * 1024  # bytes
_BATCH_ROWS: Final = 512
_BATCHES_AHEAD: Final = 4
_LINE_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes without a line end before reading fails


class EndlessLineError(OSError):
    """No line end within the maximum line length: the input is not text."""


class RowFeed:
    """The rows of a file, given by its path or open descriptor; closes it at the end.

    ``size`` is the file's size in bytes, None for a pipe; ``position`` is the number of bytes read.
    """

    def __init__(self, file: int | Path, row_format: RowFormat, fields: RowFields) -> None:
        self._stream = io.FileIO(file, "rb")  # with a path, its error contains the path
        self._format = row_format
        self._fields = fields
        self._batches: asyncio.Queue[list[Row | BadRow] | Exception | None] = asyncio.Queue()
        self._room = threading.Semaphore(_BATCHES_AHEAD)
        self._pending: list[Row | BadRow] = []
        self._is_closed = False
        status = os.fstat(self._stream.fileno())
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else None
        self.position = 0

    async def batches(self) -> AsyncGenerator[list[Row | BadRow], None]:
        """Yield rows in their order, a few at a time.

        Raises:
            OSError: Reading failed.
        """
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._read, args=(loop,), name="rows", daemon=True)
        thread.start()
        try:
            while (batch := await self._batches.get()) is not None:
                self._room.release()
                if isinstance(batch, Exception):
                    raise batch
                yield batch
        finally:
            self._is_closed = True
            self._room.release()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            for row in rows_of(self._lines(loop), self._format, self._fields):
                self._pending.append(row)
                if len(self._pending) >= _BATCH_ROWS:
                    self._hand_over(loop)
                if self._is_closed:
                    return
            self._hand_over(loop)
            self._put(loop, None)
        except (OSError, ValueError) as error:
            self._hand_over(loop)
            self._put(loop, error)
        finally:
            self._stream.close()

    def _lines(self, loop: asyncio.AbstractEventLoop) -> Iterator[bytes]:
        begun: list[bytes] = []  # pieces of the line whose end has not been read yet
        begun_size = 0
        while not self._is_closed:
            self._hand_over(loop)  # before a read that may take long
            data = self._stream.read(_READ_SIZE)
            if not data:
                break
            self.position += len(data)
            first, *others = data.split(b"\n")
            begun.append(first)
            begun_size += len(first)
            if begun_size > _LINE_SIZE_MAX:
                raise EndlessLineError(f"no line end within {_LINE_SIZE_MAX} bytes")
            if others:
                yield b"".join(begun) + b"\n"
                for line in others[:-1]:
                    yield line + b"\n"
                begun, begun_size = [others[-1]], len(others[-1])
        if begun_size:
            yield b"".join(begun)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._pending:
            batch, self._pending = self._pending, []
            self._room.acquire()
            self._put(loop, batch)

    def _put(
        self, loop: asyncio.AbstractEventLoop, item: list[Row | BadRow] | Exception | None
    ) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody waits for the rows
            loop.call_soon_threadsafe(self._batches.put_nowait, item)
