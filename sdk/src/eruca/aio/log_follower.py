"""Follow a broker's log: every record in order as it is written, system topics included.

Use it to build projections and exports. The log offset is the only state. Store
``record.next_offset`` together with the result for the record, in one transaction if possible, and
begin there the next time.

If the broker goes away, the follower waits and continues where it stopped. A log offset that
retention has deleted is an error, because continuing would leave a gap unnoticed. With a tier, the
log begins where the tier does; while the tier is unreachable, the follower waits, too.

A broker with replicas has the same log at each of them, and its epochs tell which master wrote what
(``epoch``). Store the epoch with the offset: if an operator has elected a replica that lacked
records, other records may be at offsets that were read before. Then the broker refuses the position
(:class:`~eruca.StaleEpochError`), and the log must be read again from its beginning.

Concurrency rule: belongs to the event loop that first uses it; one task reads.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from eruca.aio.cluster.broker_api import MASTER_PAUSE_SECONDS
from eruca.aio.cluster.masters import Masters
from eruca.aio.cluster.outages import Outages
from eruca.aio.http.transport import HttpResponse, problem_error, target_of
from eruca.contract.errors import (
    BrokerNotFoundError,
    ClosedError,
    ErucaError,
    NameServersUnreachableError,
    NotMasterForSureError,
    TimeoutExpiredError,
    TransportError,
    UnavailableError,
    ValidationError,
)
from eruca.contract.fields import MASTER_ID
from eruca.contract.limits import LOG_READ_SIZE_DEFAULT, LOG_READ_SIZE_MAX
from eruca.contract.records import DamagedRecordError
from eruca.contract.wire import (
    BEHIND_SECONDS_HEADER,
    DAMAGED_OFFSETS_HEADER,
    EPOCH_HEADER,
    LOG_MEDIA_TYPE,
    MAX_OFFSET_HEADER,
    NEXT_OFFSET_HEADER,
)
from eruca.core.checked_arguments import checked_calls
from eruca.core.checked_numbers import check_count
from eruca.core.messages.log_begin import log_begin
from eruca.core.messages.log_block import LogBlock, LogRecord, sound_records
from eruca.core.routing.replicas import in_sync_standbys, reader_of

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext

HOLD_SECONDS: Final = 15.0
ANSWER_SECONDS: Final = 5.0  # for the answer, on top of the hold
PAUSE_SECONDS: Final = 0.1  # after a failure; doubles
PAUSE_SECONDS_MAX: Final = 3.0
MASTER_SECONDS: Final = 30.0  # before a standby is asked again after one failed
BEHIND_SECONDS_MAX: Final = 10.0  # of a standby that is read
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
        from_epoch: int | None = None,
        prefers_replica: bool = False,
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
        if from_epoch is not None:
            check_count("from_epoch", from_epoch, 0)
        check_count("bytes_max", bytes_max, 1, LOG_READ_SIZE_MAX)
        self._context = context
        self._broker_name = broker_name
        self._start = from_offset
        self._bytes_max = bytes_max
        self._fetch_from: int | None = from_offset if isinstance(from_offset, int) else None
        self._ready: deque[LogRecord] = deque()
        self._end: int | None = None
        self._epoch = from_epoch
        self._prefers_replica = prefers_replica
        self._url: str | None = None
        self._url_is_sure = False
        self._is_at_replica = False  # whether that URL is a standby's
        self._master_until = 0.0  # time by the loop's clock before which no standby is asked
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
    def epoch(self) -> int | None:
        """Epoch of the records last returned; None before the first read, unless it was given."""
        return self._epoch

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
            StaleEpochError: The log has other records before the offset than were read.
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
        if not self._is_at_replica:
            return await self._block_at(url, wait_seconds, bytes_max)
        try:
            return await self._block_at(url, wait_seconds, bytes_max)
        except ErucaError as error:
            refusal = error
        # A standby may be behind, or lack what the master still has. Only the master's word counts.
        self._leave_replica()
        url = await self._broker_url()
        if not self._is_at_replica:
            return await self._block_at(url, wait_seconds, bytes_max)
        if isinstance(refusal, _AWAY):
            raise refusal
        raise NotMasterForSureError(
            f"broker {self._broker_name} has no master now, and a standby's word does not count: "
            f"{refusal.detail}",
            retry_after_seconds=MASTER_PAUSE_SECONDS,
        ) from refusal

    async def _block_at(self, url: str, wait_seconds: float, bytes_max: int) -> LogBlock:
        if self._fetch_from is None:
            self._fetch_from = await self._start_offset(url)
        begin = self._fetch_from
        target = target_of(
            "/v1/log",
            from_offset=begin,
            bytes_max=bytes_max,
            wait_seconds=wait_seconds or None,
            epoch=self._epoch,
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
        if damaged and self._is_at_replica:
            raise TransportError(
                f"{url}: records of this replica are damaged; others may have them"
            )
        for log_offset in damaged:
            _logger.error(
                "skipped a damaged record of %s at log offset %d",
                *(self._broker_name, log_offset),
            )
        epoch = _epoch(answer)
        block = LogBlock(
            self._broker_name,
            from_offset=begin,
            next_offset=_offset(answer, NEXT_OFFSET_HEADER),
            end_offset=_offset(answer, MAX_OFFSET_HEADER),
            data=data,
            damaged=damaged,
            epoch=epoch or 0,
        )
        if self._is_at_replica and (block.end_offset < begin or _is_late(answer)):
            self._leave_replica()
        self._fetch_from = block.next_offset
        self._epoch = epoch
        self._end = block.end_offset
        return block

    async def _start_offset(self, url: str) -> int:
        """Return where the log begins or ends; a standby at *url* is only asked for its end.

        A standby may lack records that the master still has, so only the master knows where the log
        begins. While there is none, a standby's word counts if that is clear without the master.
        """
        status = self._context.broker_api.status
        if self._start == "latest":
            return (await status(url)).log.max_offset
        if self._is_at_replica:
            with suppress(BrokerNotFoundError):  # there is no master now
                url = await Masters(self._context).of_broker(self._broker_name)
        return log_begin(await status(url))

    async def _broker_url(self) -> str:
        """Return the URL to read from; look it up again after a failure."""
        if self._url is None or not self._url_is_sure:
            masters = Masters(self._context)
            groups = {group.broker_name: group for group in await masters.brokers()}
            group = groups.get(self._broker_name)
            reader = None if group is None else reader_of(group)
            if group is None or reader is None:
                self._url = await masters.of_broker(self._broker_name)  # or its error
                self._is_at_replica = False
            else:
                now = asyncio.get_running_loop().time()
                if self._prefers_replica and now >= self._master_until:
                    reader = random.choice(in_sync_standbys(group) or [reader])
                self._url = masters.url(reader.urls)
                self._is_at_replica = reader.broker_id != MASTER_ID
            self._url_is_sure = True
        return self._url

    def _leave_replica(self) -> None:
        """Read from the master for a time."""
        self._master_until = asyncio.get_running_loop().time() + MASTER_SECONDS
        self._url_is_sure = False
        self._is_at_replica = False


def _epoch(answer: HttpResponse) -> int | None:
    """Return the epoch of an answer's records; None from a broker without replicas."""
    text = answer.headers.get(EPOCH_HEADER, "")
    return int(text) if text.isdecimal() else None


def _is_late(answer: HttpResponse) -> bool:
    """Tell whether a standby says that it has been without its master for long."""
    try:
        return float(answer.headers.get(BEHIND_SECONDS_HEADER, 0)) > BEHIND_SECONDS_MAX
    except ValueError:
        return False


def _offset(answer: HttpResponse, header: str) -> int:
    text = answer.headers.get(header, "")
    if not text.isdecimal():
        raise TransportError(
            f"expected an offset in {header} of the log feed's answer, found {text!r}"
        )
    return int(text)
