"""The log feed: the log's own bytes from an offset on, for projections and people.

The log is read up to its visible end. At the end a request is held until something is appended.
Retention can overtake a slow reader: then the offset is not found, and the error names the first
one that is. With a tier, the log begins where the tier does.

A position has an epoch, too (:mod:`eruca_broker.core.replication.log_positions`). So a reader may
continue at another replica. An answer has records of one epoch only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from eruca.contract.errors import MessageDamagedError, StaleEpochError
from eruca.contract.records import Record
from eruca_broker.core.consuming.held_pulls import Position
from eruca_broker.core.damage import UnreadableRecordError
from eruca_broker.core.replication.log_positions import (
    Standing,
    epoch_before,
    epoch_end,
    standing_of,
)
from eruca_broker.processors.held_requests import LOG_FEED, HeldRequests
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.reading.cold_reads import AHEAD_SIZE
from eruca_broker.store.reading.log_reader import LogRead


class FeedRead(NamedTuple):
    """A stretch of the log, and the epoch of the position behind it."""

    stretch: LogRead
    epoch: int  # 0: without replicas


class LogFeed:
    """Reads this broker's log."""

    def __init__(self, store: MessageStore, held: HeldRequests) -> None:
        self._store = store
        self._held = held

    async def read(
        self,
        from_offset: int,
        bytes_max: int,
        wait_seconds: float,
        gone: Callable[[], Awaitable[object]],
        *,
        reader: str,
        epoch: int | None = None,
    ) -> FeedRead | None:
        """Return whole records from *from_offset* on; None if the client disconnected meanwhile.

        With the *epoch* of the record before it, a position beyond the end of a replica's log is no
        error: the answer has no records. A master lacks nothing that was ever shown. *reader* pays
        for what is not in memory.

        Raises:
            StaleEpochError: The log has other records before it than those of *epoch*.
            RecordNotFoundError: No record starts there.
            UnavailableError: The log is damaged from there on, or shortly behind; or it is in the
                tier, which cannot be read now.
            OverloadedError: The maximum of held requests is reached.
        """
        look = partial(self._read, from_offset, bytes_max, epoch)
        read = await self._store.cold.read(reader, look, ahead=AHEAD_SIZE)
        stretch = read.stretch
        if not stretch.records and stretch.next_offset == from_offset and wait_seconds > 0:
            if not await self._held.wait([Position(LOG_FEED, from_offset)], wait_seconds, gone):
                return None
            read = await self._store.cold.read(reader, look, ahead=AHEAD_SIZE)
        return read

    def _read(self, from_offset: int, bytes_max: int, epoch: int | None) -> FeedRead:
        log, end = self._store.whole_log, self._store.visible_offset
        epochs = log.epochs_at(from_offset)
        if epoch is not None:
            standing = standing_of(epochs, end, epoch=epoch, log_offset=from_offset)
            is_lost = standing is Standing.AHEAD and not self._store.role.is_replica
            if standing is Standing.STALE or (is_lost and epoch > epochs.last):
                raise StaleEpochError(
                    f"the record before log offset {from_offset} is of epoch "
                    f"{epoch_before(epochs, from_offset)}, not of {epoch}: after an unclean "
                    "election the log has other records there",
                    fix="discard what was read, and read the log again from its beginning",
                )
            if standing is Standing.AHEAD and not is_lost:
                nothing = log.read(end, 1)
                return FeedRead(nothing._replace(next_offset=from_offset), epoch)
        stretch = log.read(from_offset, bytes_max, epoch_end(epochs, from_offset))
        return FeedRead(stretch, epoch_before(epochs, stretch.next_offset))

    def record(self, log_offset: int, reader: str) -> Record:
        """Return the record at *log_offset*, for an exchange of *reader*.

        Raises:
            PostponedError: It is not in memory.
            MessageDamagedError: It is damaged.
            RecordNotFoundError: No record starts there.
        """
        try:
            read = partial(self._store.whole_log.record, log_offset)
            return self._store.cold.attempt(reader, read)
        except UnreadableRecordError as error:
            raise MessageDamagedError(error.detail, fix=error.fix) from error

    def raw_record(self, log_offset: int, reader: str) -> bytes | memoryview:
        """Return the bytes of the record at *log_offset*; raises like :meth:`record`."""
        self.record(log_offset, reader)  # its error names the fault
        return self._store.cold.attempt(reader, partial(self._store.whole_log.raw, log_offset))
