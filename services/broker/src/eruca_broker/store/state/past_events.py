"""The events of an earlier time: in the queue here, or in the segment of the tier that has them."""

from __future__ import annotations

from typing import Protocol

from eruca.contract.names import EVENTS_TOPIC
from eruca_broker.core.consume_queue_entry import Entries
from eruca_broker.core.offset_search import partition_point
from eruca_broker.core.state.events import EVENTS_QUEUE_ID
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.reading.log_reader import LogReader
from eruca_broker.store.reading.tiered_log import TieredLog
from eruca_broker.store.tier.reader import TierReader
from eruca_broker.store.tier.tier_queue import TierQueue


class PastEvents(Protocol):
    """Events in their order. In an attempt, each method may end with NotInMemoryError."""

    @property
    def begin(self) -> int:
        """Queue offset of the first event that is there."""
        ...

    @property
    def end(self) -> int:
        """Queue offset after the last one."""
        ...

    def entries(self, first: int, count: int) -> Entries:
        """Return entries from queue offset *first* on."""
        ...

    def raw(self, log_offset: int) -> bytes:
        """Return the bytes of an event's record.

        Raises:
            RecordNotFoundError: No record starts there.
        """
        ...


class LocalEvents:
    """The events on this broker's disk; retention may move their beginning."""

    def __init__(self, queue: ConsumeQueue, reader: LogReader) -> None:
        self._queue = queue
        self._reader = reader

    @property
    def begin(self) -> int:
        """As its name in :class:`PastEvents`."""
        return self._queue.min_offset

    @property
    def end(self) -> int:
        """As its name in :class:`PastEvents`."""
        return self._queue.max_offset

    def entries(self, first: int, count: int) -> Entries:
        """As its name in :class:`PastEvents`."""
        return self._queue.entries(first, count)

    def raw(self, log_offset: int) -> bytes:
        """As its name in :class:`PastEvents`."""
        return bytes(self._reader.raw(log_offset, is_proved=False))


class TierEvents:
    """The events of one segment of the tier: it begins with a snapshot, so no others are needed."""

    def __init__(self, part: TierQueue, log: TieredLog) -> None:
        self.begin = part.begin
        self.end = part.end
        self._part = part
        self._log = log

    def entries(self, first: int, count: int) -> Entries:
        """As its name in :class:`PastEvents`."""
        return self._part.all_entries(first, count)

    def raw(self, log_offset: int) -> bytes:
        """As its name in :class:`PastEvents`."""
        return bytes(self._log.raw(log_offset))


def tier_events(tier: TierReader, log: TieredLog, log_offset: int) -> TierEvents | None:
    """Return the events of the segment that ends at *log_offset* or has it; None: it has none.

    Raises:
        NotInMemoryError: Something needed is not here, in an attempt.
        UnavailableError: The tier cannot be read now.
    """
    parts = tier.parts_of(tier.place_of(log_offset - 1), (EVENTS_TOPIC, EVENTS_QUEUE_ID))
    return TierEvents(parts[-1], log) if parts else None


def first_from(events: PastEvents, log_offset: int) -> int:
    """Return the queue offset of the first event whose record is at *log_offset* or later."""
    return partition_point(
        events.begin,
        events.end,
        lambda offset: int(events.entries(offset, 1)["log_offset"][0]) < log_offset,
    )
