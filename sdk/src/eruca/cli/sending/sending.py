"""Send many rows: a window of messages under way, counts, and the first error.

Rows with a sharding key stay in order, as the producer guarantees; others are spread over the
queues.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from eruca.aio.client import AsyncClient
from eruca.cli.sending.delays import Delay
from eruca.cli.sending.rows import BadRow, Row
from eruca.contract.errors import (
    ErucaError,
    MalformedBodyError,
    TooLargeError,
    ValidationError,
)
from eruca.core.messages.message import Message
from eruca.core.producing.send_result import SendResult

_WINDOW: Final = 16_384  # messages under way; the producer limits their bytes
_TIMEOUT_SECONDS: Final = 30.0  # a window of large messages takes a while on a slow connection
_CONTENT_ERRORS: Final = (ValidationError, TooLargeError, MalformedBodyError)


class BadRowError(ErucaError):
    """A row cannot become a message, and skipping is off."""

    code = "bad-row"
    title = "A row of the input cannot become a message"
    default_fix = "correct the row, or use --skip-errors"


@dataclass(slots=True)
class SendCounts:
    """The progress of sending."""

    sent: int = 0
    skipped: int = 0
    bytes: int = 0  # of bodies sent
    seconds: float = 0.0


class RowSender:
    """Sends rows to one topic.

    Args:
        client: The cluster's client.
        topic: The topic.
        skip_errors: Whether to report and count a bad row, or to raise an error.
        on_bad_row: Called with each skipped row.
        on_progress: Called from time to time with the counts.
    """

    def __init__(
        self,
        client: AsyncClient,
        topic: str,
        *,
        delay: Delay,
        copies: int = 1,
        skip_errors: bool,
        on_bad_row: Callable[[BadRow], None],
        on_progress: Callable[[SendCounts], None],
    ) -> None:
        self._client = client
        self._topic = topic
        self._delay = delay
        self._copies = copies
        self._skip_errors = skip_errors
        self._on_bad_row = on_bad_row
        self._on_progress = on_progress
        self._under_way: deque[tuple[Row, asyncio.Future[SendResult]]] = deque()
        self._started_at = 0.0
        self.counts = SendCounts()

    async def send(self, batches: AsyncGenerator[list[Row | BadRow], None]) -> None:
        """Send every row; return when all are stored.

        Raises:
            BadRowError: A row is bad and skipping is off, or nothing after it can be read; the rows
                before it are stored.
            ErucaError: A message could not be stored; the error names its line.
        """
        self._started_at = time.perf_counter()
        async with (
            self._client.producer(
                copies=self._copies, send_timeout_seconds=_TIMEOUT_SECONDS
            ) as producer,
            aclosing(batches),
        ):
            try:
                while (batch := await self._next(batches)) is not None:
                    for row in batch:
                        if (message := self._message(row)) is not None:
                            assert isinstance(row, Row)
                            self._under_way.append((row, await producer.submit(message)))
                            await self._settle(_WINDOW)
                    self._tell()
                await producer.flush()
                await self._settle(0)
            except BaseException as error:
                # Wait for the rows before a bad row or Ctrl-C, and count them.
                await producer.flush(_TIMEOUT_SECONDS)
                earlier = self._count_stored()
                if isinstance(error, BadRowError) and earlier is not None:
                    raise _at_line(*earlier) from None
                raise
            finally:
                self._tell()

    async def _next(
        self, batches: AsyncGenerator[list[Row | BadRow], None]
    ) -> list[Row | BadRow] | None:
        """Return the next rows, None at the end; process finished sends meanwhile."""
        coming = asyncio.ensure_future(anext(batches, None))
        try:
            while not coming.done():
                awaited: list[asyncio.Future[Any]] = [coming]
                awaited += [future for _, future in islice(self._under_way, 1)]
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                await self._settle_done()
            return coming.result()
        finally:
            if not coming.done():
                coming.cancel()
                await asyncio.wait((coming,))

    def _tell(self) -> None:
        self.counts.seconds = time.perf_counter() - self._started_at
        self._on_progress(self.counts)

    def _count_stored(self) -> tuple[Row, ErucaError] | None:
        """Count the stored rows of all that are under way; return the first that failed."""
        first: tuple[Row, ErucaError] | None = None
        for row, future in self._under_way:
            if not future.done() or future.cancelled():
                continue
            error = future.exception()
            if error is None:
                self._count(row)
            elif first is None and isinstance(error, ErucaError):
                first = row, error
        self._under_way.clear()
        return first

    def _count(self, row: Row) -> None:
        self.counts.sent += 1
        self.counts.bytes += len(row.body)

    def _message(self, row: Row | BadRow) -> Message | None:
        if isinstance(row, Row):
            try:
                return Message(
                    self._topic,
                    row.body,
                    keys=row.keys,
                    tag=row.tag,
                    properties=row.properties,
                    sharding_key=row.sharding_key,
                    deliver_at=self._delay.deliver_at,
                    delay_seconds=self._delay.seconds,
                )
            except _CONTENT_ERRORS as error:
                row = BadRow(row.line, error.detail)
        self._skip(row)
        return None

    def _skip(self, row: BadRow) -> None:
        if row.is_last:
            raise BadRowError(f"line {row.line}: {row.fault}", fix="correct the row")
        if not self._skip_errors:
            raise BadRowError(f"line {row.line}: {row.fault}")
        self.counts.skipped += 1
        self._on_bad_row(row)

    async def _settle_done(self) -> None:
        while self._under_way and self._under_way[0][1].done():
            await self._settle_first()

    async def _settle(self, left: int) -> None:
        while len(self._under_way) > left:
            await self._settle_first()

    async def _settle_first(self) -> None:
        row, future = self._under_way[0]
        if not future.done():
            # Not awaited directly: Ctrl-C would cancel it, and a stored row would not be counted.
            await asyncio.wait((future,))
        self._under_way.popleft()
        try:
            future.result()
        except _CONTENT_ERRORS as error:
            self._skip(BadRow(row.line, error.detail))
            return
        except ErucaError as error:
            raise _at_line(row, error) from None
        self._count(row)


def _at_line(row: Row, error: ErucaError) -> ErucaError:
    """Return *error*, which ends the command, with the row's line. Other rows share the error."""
    error.detail = f"line {row.line}: {error.detail}"
    return error
