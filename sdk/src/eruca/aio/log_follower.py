"""Follow a broker's log: every record in order as it is written, system topics included.

Use it to build projections and exports. The log offset is the only state. Store
``record.next_offset`` together with the result for the record, in one transaction if possible, and
begin there the next time.

If the broker goes away, the follower waits and continues where it stopped. A log offset that
retention has deleted is an error, because continuing would leave a gap unnoticed.

Concurrency rule: belongs to the event loop that first uses it; one task reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from eruca.aio.cluster.masters import Masters
from eruca.aio.cluster.outages import Outages
from eruca.aio.http.transport import HttpResponse, problem_error, target_of
from eruca.contract.errors import (
    BrokerNotFoundError,
    ClosedError,
    ErucaError,
    NameServersUnreachableError,
    TimeoutExpiredError,
    TransportError,
    UnavailableError,
    ValidationError,
)
from eruca.contract.limits import LOG_READ_SIZE_DEFAULT, LOG_READ_SIZE_MAX
from eruca.contract.records import DamagedRecordError
from eruca.contract.wire import (
    DAMAGED_OFFSETS_HEADER,
    LOG_MEDIA_TYPE,
    MAX_OFFSET_HEADER,
    NEXT_OFFSET_HEADER,
)
from eruca.core.checked_arguments import checked_calls
from eruca.core.checked_numbers import check_count
from eruca.core.messages.log_block import LogBlock, LogRecord, sound_records

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext

HOLD_SECONDS: Final = 15.0
ANSWER_SECONDS: Final = 5.0  # for the answer, on top of the hold
PAUSE_SECONDS: Final = 0.1  # after a failure; doubles
PAUSE_SECONDS_MAX: Final = 3.0
_HEADERS: Final = (("accept", LOG_MEDIA_TYPE),)
_AWAY: Final = (
    TransportError,
    TimeoutExpiredError,
    UnavailableError,
    NameServersUnreachableError,
    BrokerNotFoundError,
)

_logger = logging.getLogger(__name__)


@checked_calls()
class AsyncLogFollower:
    """Reads one broker's log; made by :meth:`eruca.AsyncClient.log_follower`."""

    def __init__(
        self,
        context: ClientContext,
        broker_name: str,
        *,
        from_offset: int | Literal["earliest", "latest"] = "earliest",
        bytes_max: int = LOG_READ_SIZE_DEFAULT,
    ) -> None:
        if isinstance(from_offset, str):
            if from_offset not in ("earliest", "latest"):
                raise ValidationError(
                    "from_offset: expected a log offset, 'earliest' or"
                    f" 'latest', found {from_offset!r}"
                )
        else:
            check_count("from_offset", from_offset, 0)
        check_count("bytes_max", bytes_max, 1, LOG_READ_SIZE_MAX)
        self._context = context
        self._broker_name = broker_name
        self._start = from_offset
        self._bytes_max = bytes_max
        self._fetch_from: int | None = from_offset if isinstance(from_offset, int) else None
        self._ready: deque[LogRecord] = deque()
        self._end: int | None = None
        self._url: str | None = None
        self._url_is_sure = False
        self._pause = PAUSE_SECONDS
        self._outages = Outages(
            _logger,
            failed="the log of %s cannot be read; retrying: %s",
            over="the log of %s is read again",
        )
        self._is_closed = False

    @property
    def next_offset(self) -> int | None:
        """Offset of the next record; None before the first read, unless it was given."""
        return self._ready[0].log_offset if self._ready else self._fetch_from

    @property
    def end_offset(self) -> int | None:
        """End of the log at the last read; None before the first."""
        return self._end

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogRecord:
        """Return the next record, however long it takes.

        Raises:
            RecordNotFoundError: Retention has deleted the offset, or no record starts there.
            BrokerNotFoundError: No such broker was ever registered.
        """
        while (record := self._hand_out()) is None:
            if not await self._fill():
                raise StopAsyncIteration
        return record

    async def read(self, wait_seconds: float = 0.0) -> list[LogRecord]:
        """Return the next records, about a megabyte at most; empty if there are none.

        Unlike iterating, it raises if the broker is away, and does not wait for it.

        Args:
            wait_seconds: Maximum wait at the end of the log, up to 30 s.
        """
        if not self._ready:
            await self._fetch(wait_seconds)
        records = list(self._ready)
        self._ready.clear()
        return records

    async def read_block(
        self, wait_seconds: float = 0.0, *, bytes_max: int | None = None
    ) -> LogBlock:
        """Return the next records as one block, for readers that process thousands in one step.

        Like ``read`` it raises if the broker is away. The caller must check that the block's bytes
        are valid records.

        Args:
            wait_seconds: Maximum wait at the end of the log, up to 30 s.
            bytes_max: Approximate number of bytes, up to 8 MiB; the block has at least one record.
        """
        assert not self._ready, (
            "read_block cannot return records that iterating has already fetched"
        )
        return await self._fetch_block(wait_seconds, bytes_max or self._bytes_max)

    async def close(self) -> None:
        """Stop reading."""
        self._is_closed = True
        self._context.forget(self)

    async def leave(self, *, drain: bool, failed: bool) -> None:
        """Close because the context or the client ends."""
        await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _hand_out(self) -> LogRecord | None:
        """Return the next fetched record; may run in another thread than the loop's."""
        return self._ready.popleft() if self._ready else None

    async def _fill(self) -> bool:
        """Wait for more records, or for the broker; return whether the iteration continues."""
        if self._is_closed:
            return False
        try:
            await self._fetch(HOLD_SECONDS)
        except _AWAY as error:
            if self._url is None and isinstance(error, BrokerNotFoundError):
                raise
            self._outages.failed(self._broker_name, error)
            await asyncio.sleep(max(self._pause, error.retry_after_seconds or 0.0))
            self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)
        else:
            self._pause = PAUSE_SECONDS
            self._outages.answered(self._broker_name)
        return True

    async def _fetch(self, wait_seconds: float) -> None:
        block = await self._fetch_block(wait_seconds, self._bytes_max)
        try:
            self._ready.extend(block.records())
        except DamagedRecordError as error:
            self._ready.clear()
            self._fetch_from = block.from_offset
            raise TransportError(
                f"broker {self._broker_name} sent an invalid part of its log from offset"
                f" {block.from_offset}: {error}"
            ) from error

    async def _fetch_block(self, wait_seconds: float, bytes_max: int) -> LogBlock:
        if self._is_closed:
            raise ClosedError("the follower is closed")
        url = await self._broker_url()
        if self._fetch_from is None:
            log = (await self._context.broker_api.status(url)).log
            self._fetch_from = log.max_offset if self._start == "latest" else log.min_offset
        begin = self._fetch_from
        target = target_of(
            "/v1/log",
            from_offset=begin,
            bytes_max=bytes_max,
            wait_seconds=wait_seconds or None,
        )
        try:
            answer = await self._context.held_transport.request(
                "GET", url, target, headers=_HEADERS, timeout=wait_seconds + ANSWER_SECONDS
            )
            if answer.status != 200:
                raise problem_error(answer, f"GET {url}{target}")
        except ErucaError:
            self._url_is_sure = False  # another broker may have its address now
            raise
        try:
            data, damaged = sound_records(
                answer.body, begin, answer.headers.get(DAMAGED_OFFSETS_HEADER, "")
            )
        except ValueError as error:
            raise TransportError(f"{url}{target}: {error}") from error
        for log_offset in damaged:
            _logger.error(
                "skipped a damaged record of %s at log offset %d",
                *(self._broker_name, log_offset),
            )
        block = LogBlock(
            self._broker_name,
            from_offset=begin,
            next_offset=_offset(answer, NEXT_OFFSET_HEADER),
            end_offset=_offset(answer, MAX_OFFSET_HEADER),
            data=data,
            damaged=damaged,
        )
        self._fetch_from = block.next_offset
        self._end = block.end_offset
        return block

    async def _broker_url(self) -> str:
        """Return the broker's URL; look it up again after a failure."""
        if self._url is None or not self._url_is_sure:
            self._url = await Masters(self._context).of_broker(self._broker_name)
            self._url_is_sure = True
        return self._url


def _offset(answer: HttpResponse, header: str) -> int:
    text = answer.headers.get(header, "")
    if not text.isdecimal():
        raise TransportError(
            f"expected an offset in {header} of the log feed's answer, found {text!r}"
        )
    return int(text)
