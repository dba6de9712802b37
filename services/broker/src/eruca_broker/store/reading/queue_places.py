"""The places of messages: their offsets by time, their store times, and where the log has them."""

from __future__ import annotations

from typing import Final

import numpy as np
import structlog

from eruca.contract.errors import RecordNotFoundError
from eruca_broker.core.offset_search import partition_point
from eruca_broker.store.pulling.queue_ranges import QueueRanges
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.queue_files import DamagedQueueError
from eruca_broker.store.reading.log_reader import LogReader

_log: Final = structlog.get_logger()


class QueuePlaces:
    """Finds places in one store's queues.

    Args:
        ranges: Of its queues.
        queues: Its consume queues.
        log_reader: Reads single records.
    """

    def __init__(self, ranges: QueueRanges, queues: ConsumeQueues, log_reader: LogReader) -> None:
        self._ranges = ranges
        self._queues = queues
        self._log_reader = log_reader

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """Return the first offset stored at or after a time, or the last at or before it.

        Raises:
            UnavailableError: The queue's files cannot be read.
        """
        lowest, highest = self._ranges.range(topic, queue_id)
        first, _ = self._ranges.local_range(topic, queue_id)
        if lowest < first:
            found = self._tier_offset_by_time(topic, queue_id, timestamp_ms, upper=upper)
            if found is not None:
                return min(max(found, lowest), highest)
        queue = self._queues.existing(topic, queue_id)
        if queue is None or first == highest:
            return highest - 1 if upper and lowest < highest else highest
        try:
            found = queue.offset_by_time(
                timestamp_ms, upper=upper, store_time_of=self._log_reader.store_timestamp
            )
        except (OSError, DamagedQueueError) as error:
            raise self._ranges.failed((topic, queue_id), error) from error
        if upper and lowest < first:
            found = max(found, first - 1)  # the last one in the tier is at or before the time
        return min(max(found, lowest), highest)

    def bytes_between(self, topic: str, queue_id: int, begin: int, end: int) -> tuple[int, int]:
        """Return the bytes of the messages from offset *begin* up to *end*, and their number.

        Only messages that are present here count, and none of the tier.

        Raises:
            UnavailableError: The queue's files cannot be read.
        """
        lowest, highest = self._ranges.local_range(topic, queue_id)
        queue = self._queues.existing(topic, queue_id)
        begin, end = max(begin, lowest), min(end, highest)
        if queue is None or begin >= end:
            return 0, 0
        try:
            entries = queue.entries(begin, end - begin)
        except (OSError, DamagedQueueError) as error:
            raise self._ranges.failed((topic, queue_id), error) from error
        return int(entries["size"].sum(dtype=np.int64)), len(entries)

    def _tier_offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool
    ) -> int | None:
        """Return the result of a search that ends in the tier; None: it ends behind it."""
        assert self._ranges.tier is not None
        since = self._ranges.created_at(topic)
        first_ms = timestamp_ms + 1 if upper else timestamp_ms
        found = self._ranges.tier.offset_by_time((topic, queue_id), since, first_ms)
        if found is None:
            return None
        first, highest = self._ranges.local_range(topic, queue_id)
        if found >= first and first < highest:
            return None  # the log here decides
        return found - 1 if upper else found

    def stored_at_ms(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Return when a message was stored; None if it is missing or damaged.

        Damage, which may be the queue's, is logged: it must not fail the rest of the request.
        """
        lowest, highest = self._ranges.range_for(topic, queue_id, queue_offset)
        queue = self._queues.existing(topic, queue_id)
        if not lowest <= queue_offset < highest:
            return None
        if queue_offset < self._ranges.local_range(topic, queue_id)[0]:
            tier, since = self._ranges.tier, self._ranges.created_at(topic)
            assert tier is not None
            return tier.queue((topic, queue_id), since, queue_offset).time(queue_offset)
        if queue is None:
            return None
        try:
            return self._log_reader.record(queue.entry(queue_offset).log_offset).store_timestamp
        except RecordNotFoundError as error:
            fault = error.detail
        except (OSError, DamagedQueueError) as error:
            fault = self._ranges.failed((topic, queue_id), error).detail
        _log.error(
            "a damaged message has no readable store time",
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            fault=fault,
        )
        return None

    def log_offset_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the log offset of a message that is in the queue.

        Raises:
            UnavailableError: The queue's files cannot be read.
        """
        tier = self._ranges.tier
        if tier is not None and queue_offset < self._ranges.local_range(topic, queue_id)[0]:
            since = self._ranges.created_at(topic)
            return tier.queue((topic, queue_id), since, queue_offset).entry_at(queue_offset)
        try:
            return self._queues.queue(topic, queue_id).entry(queue_offset).log_offset
        except (OSError, DamagedQueueError) as error:
            raise self._ranges.failed((topic, queue_id), error) from error

    def offset_at(self, topic: str, queue_id: int, log_offset: int) -> int | None:
        """Return the queue offset of the message at *log_offset*; None if it is not in the queue.

        Raises:
            UnavailableError: The queue's files cannot be read.
        """
        lowest, highest = self._ranges.local_range(topic, queue_id)
        queue = self._queues.existing(topic, queue_id)
        if queue is None:
            return None
        try:
            found = partition_point(
                lowest, highest, lambda offset: queue.entry(offset).log_offset < log_offset
            )
            is_it = found < highest and queue.entry(found).log_offset == log_offset
        except (OSError, DamagedQueueError) as error:
            raise self._ranges.failed((topic, queue_id), error) from error
        return found if is_it else None
