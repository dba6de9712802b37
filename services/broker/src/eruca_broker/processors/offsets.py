"""Offsets: the beginnings and ends of queues, and offsets by time.

Source: RocketMQ 5.3, ``AdminBrokerProcessor``.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Final, Literal

from eruca.contract.topics import OffsetByTime, QueueOffsets, TopicQueues
from eruca_broker.core.records.times import moment, ms_not_before, ms_of
from eruca_broker.core.state.group_state import Queue
from eruca_broker.processors.store_times import StoreTimes
from eruca_broker.processors.topics import Topics
from eruca_broker.store.message_store import MessageStore

_READER: Final = "offsets"  # pays for what is not in memory


class Offsets:
    """Offsets of this broker's queues."""

    def __init__(self, store: MessageStore, topics: Topics, started_at: datetime) -> None:
        self._store = store
        self._topics = topics
        self._started_at = started_at

    async def of_topic(self, name: str, *, include_system: bool = False) -> TopicQueues:
        """Return the first and the next offset of each of a topic's queues, of one moment.

        A time in the tier that cannot be read now is unknown. With *include_system* the topic may
        be one that the system keeps for itself.
        """
        times = StoreTimes(self._store, _READER)
        return await times.listed(
            lambda times: self._of_topic(name, times, include_system=include_system)
        )

    async def by_time(
        self,
        name: str,
        queue_id: int,
        timestamp: datetime,
        boundary: Literal["lower", "upper"],
        *,
        include_system: bool = False,
    ) -> OffsetByTime:
        """Return the offset for *timestamp*, by the broker's store times.

        ``lower``: of the first message stored at that time or later, or the queue's end. ``upper``:
        of the last message stored at that time or earlier, or the queue's beginning. With
        *include_system* the topic may be one that the system keeps for itself.
        """
        topic = self._topics.get(name, include_system=include_system)
        self._topics.check_queue(topic, queue_id)
        is_upper = boundary == "upper"
        ms = ms_of(timestamp) if is_upper else ms_not_before(timestamp)
        find = partial(self._store.places.offset_by_time, name, queue_id, ms, upper=is_upper)
        offset = await self._store.cold.read(_READER, find)
        return OffsetByTime(
            topic=name, queue_id=queue_id, timestamp=timestamp, boundary=boundary, offset=offset
        )

    def _of_topic(self, name: str, times: StoreTimes, *, include_system: bool) -> TopicQueues:
        topic = self._topics.get(name, include_system=include_system)
        queue_count = max(topic.read_queue_count, topic.write_queue_count)
        return TopicQueues(
            topic=name,
            topic_id=self._store.state.topic_id(topic),
            broker_started_at=self._started_at,
            epoch=self._store.state.log_epochs.table.last,
            log_offset=self._store.visible_offset,
            queues=[self._of_queue((name, queue_id), times) for queue_id in range(queue_count)],
        )

    def _of_queue(self, queue: Queue, times: StoreTimes) -> QueueOffsets:
        first, end = self._store.queues.range(*queue)
        earliest = times.stored_at_ms(queue, first) if first < end else None
        latest = times.stored_at_ms(queue, end - 1) if first < end else None
        return QueueOffsets(
            queue_id=queue[1],
            min_offset=first,
            max_offset=end,
            earliest_stored_at=None if earliest is None else moment(earliest),
            latest_stored_at=None if latest is None else moment(latest),
        )
