"""The log feed: the log's own bytes from an offset on, for projections and people.

The log is read up to its visible end. At the end a request is held until something is appended.
Retention can overtake a slow reader: then the offset is not found, and the error names the first
one that is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from eruca.contract.errors import MessageDamagedError
from eruca.contract.records import Record
from eruca_broker.core.consuming.held_pulls import Position
from eruca_broker.core.damage import UnreadableRecordError
from eruca_broker.processors.held_requests import LOG_FEED, HeldRequests
from eruca_broker.store.log_reader import LogRead
from eruca_broker.store.message_store import MessageStore


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
    ) -> LogRead | None:
        """Return whole records from *from_offset* on; None if the client disconnected meanwhile.

        Raises:
            RecordNotFoundError: No record starts there.
            UnavailableError: The log is damaged from there on, or shortly behind.
            OverloadedError: The maximum of held requests is reached.
        """
        read = self._store.log_read(from_offset, bytes_max)
        if not read.records and read.next_offset == from_offset and wait_seconds > 0:
            if not await self._held.wait([Position(LOG_FEED, from_offset)], wait_seconds, gone):
                return None
            read = self._store.log_read(from_offset, bytes_max)
        return read

    def record(self, log_offset: int) -> Record:
        """Return the record at *log_offset*.

        Raises:
            MessageDamagedError: It is damaged.
            RecordNotFoundError: No record starts there.
        """
        try:
            return self._store.record(log_offset)
        except UnreadableRecordError as error:
            raise MessageDamagedError(error.detail, fix=error.fix) from error

    def raw_record(self, log_offset: int) -> memoryview:
        """Return the bytes of the record at *log_offset*; raises like :meth:`record`."""
        self.record(log_offset)  # its error names the fault
        return self._store.raw_record(log_offset)
