"""The log of a broker, as a backup reads it: by the log feed, with the caller's rights.

The feed shows what is confirmed: every replica in sync has it. A backup ends where that is durable,
too, so nothing that it has can be lost by the broker later. It prefers a standby, which spares the
master. The epoch of a position proves to whichever replica answers that its log is the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from eruca.contract.errors import (
    ConflictError,
    ErucaError,
    MessageDamagedError,
    RecordNotFoundError,
    UnavailableError,
)
from eruca.contract.limits import LOG_READ_SIZE_MAX
from eruca.contract.wire import LOG_MEDIA_TYPE
from eruca.core.messages.log_begin import log_begin

if TYPE_CHECKING:
    from eruca.aio.client import AsyncClient
    from eruca.aio.log_follower import AsyncLogFollower
    from eruca.core.messages.log_block import LogBlock

DURABLE_SECONDS_MAX: Final = 10.0  # for the broker to flush what it has acknowledged
WAIT_SECONDS: Final = 5.0  # for a standby to show what the master has confirmed
TRIES: Final = 5  # of one read, in a row
_PAUSE_SECONDS: Final = 0.1  # between two questions whether it is durable
_RETRY_SECONDS: Final = 0.5  # before the second try; doubles


class Extent(NamedTuple):
    """The part of a log that a backup can have now."""

    cluster: str
    broker_version: str
    log_id: str
    min_offset: int
    end_offset: int  # everything before it is visible and durable
    segment_bytes: int
    not_durable_bytes: int = 0  # visible, and not in the backup


class Stretch(NamedTuple):
    """Whole records of one segment, as the log has them."""

    data: bytes
    next_offset: int  # of the next record; in the next segment if a blank record follows
    epoch: int


class LogSource(Protocol):
    """A log to back up."""

    broker_name: str

    async def extent(self) -> Extent:
        """Return the log's extent, once what is acknowledged by now is durable."""
        ...

    async def record(self, log_offset: int) -> bytes | None:
        """Return the bytes of the record at an offset; None if no record starts there."""
        ...

    async def read(self, log_offset: int, epoch: int) -> Stretch:
        """Return the next records from *log_offset* on, at least one or a blank one.

        Args:
            log_offset: The beginning of a record.
            epoch: Of the record before it; 0: none, or without replicas.

        Raises:
            RecordNotFoundError: Retention has deleted the record, or the log was truncated.
            StaleEpochError: The log has other records before it.
            MessageDamagedError: A record is damaged.
            ErucaError: It cannot be read now.
        """
        ...


class BrokerLog:
    """The log of a broker of a cluster."""

    def __init__(self, client: AsyncClient, broker_name: str) -> None:
        self._client = client
        self.broker_name = broker_name
        self._follower: AsyncLogFollower | None = None
        self._is_at_master = False  # … because a standby's record is damaged

    async def extent(self) -> Extent:
        """Return the log's extent; see :class:`LogSource`.

        Raises:
            ErucaError: No broker of the name answers, its log has no id, or it does not know yet
                where its log begins.
        """
        url = await self._reader_url()
        status = await self._client.context.broker_api.status(url)
        if status.log.log_id is None:
            raise ConflictError(
                f"the log of {self.broker_name} has no id, by which backups know it",
                fix="upgrade the broker; an empty replica gets its log from its master",
            )
        begin = log_begin(status)
        follower = self._client.log_follower(  # at what is on the disk: only the end is asked for
            self.broker_name, from_offset=status.log.min_offset, prefers_replica=False
        )
        async with follower:
            visible = (await follower.read_block(bytes_max=1)).end_offset
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DURABLE_SECONDS_MAX
        while status.log.flushed_offset < visible and loop.time() < deadline:
            await asyncio.sleep(_PAUSE_SECONDS)
            status = await self._client.context.broker_api.status(url)
        end = min(visible, status.log.flushed_offset)
        return Extent(
            status.cluster,
            status.version,
            status.log.log_id or "",
            begin,
            end,
            status.log.segment_bytes,
            visible - end,
        )

    async def record(self, log_offset: int) -> bytes | None:
        """Return a record's bytes; see :class:`LogSource`."""
        from eruca.aio.http.transport import problem_error

        url, target = await self._reader_url(), f"/v1/log/records/{log_offset}"
        answer = await self._client.context.transport.request(
            "GET", url, target, headers=(("accept", LOG_MEDIA_TYPE),), timeout=WAIT_SECONDS
        )
        if answer.status == 200:
            return answer.body
        error = problem_error(answer, f"GET {url}{target}")
        if isinstance(error, RecordNotFoundError | MessageDamagedError):
            return None
        raise error

    async def read(self, log_offset: int, epoch: int) -> Stretch:
        """Return the next records; see :class:`LogSource`."""
        left, pause = TRIES, _RETRY_SECONDS
        while True:
            left -= 1
            try:
                block = await self._read(log_offset, epoch)
            except ErucaError as error:
                await self._leave()
                if not (left and error.retryable):
                    raise
                await asyncio.sleep(max(pause, error.retry_after_seconds or 0.0))
                pause *= 2
                continue
            if not block.damaged:
                return Stretch(block.data, block.next_offset, block.epoch)
            await self._leave()
            if self._is_at_master:
                raise _damaged(self.broker_name, min(block.damaged))
            self._is_at_master = True  # the master's record may be sound

    async def close(self) -> None:
        """Stop reading."""
        await self._leave()

    async def _read(self, log_offset: int, epoch: int) -> LogBlock:
        follower = self._follower
        if follower is None or follower.next_offset != log_offset:
            await self._leave()
            follower = self._follower = self._client.log_follower(
                self.broker_name,
                from_offset=log_offset,
                from_epoch=epoch or None,
                prefers_replica=not self._is_at_master,
            )
        block = await follower.read_block(WAIT_SECONDS, bytes_max=LOG_READ_SIZE_MAX)
        if block.next_offset == log_offset:
            raise UnavailableError(
                f"the broker that answers for {self.broker_name} has not copied the log up to "
                f"{log_offset} yet"
            )
        return block

    async def _leave(self) -> None:
        if self._follower is not None:
            await self._follower.close()
            self._follower = None

    async def _reader_url(self) -> str:
        """Return the master's URL; that of another replica while there is none."""
        from eruca.aio.cluster.masters import Masters
        from eruca.core.routing.replicas import reader_of

        masters = Masters(self._client.context)
        groups = {group.broker_name: group for group in await masters.brokers()}
        group = groups.get(self.broker_name)
        reader = None if group is None else reader_of(group)
        if reader is None:
            return await masters.of_broker(self.broker_name)  # or its error
        return masters.url(reader.urls)


def _damaged(broker_name: str, log_offset: int) -> MessageDamagedError:
    return MessageDamagedError(
        f"the record of {broker_name} at log offset {log_offset} is damaged, and a backup never "
        "has a damaged record; earlier backups stay as they are",
        fix="repair it: a broker with replicas does that by itself; without them, restore its log "
        "file, or wait until retention has deleted it and back up then",
    )
