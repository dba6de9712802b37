"""Offsets: where queues begin and end, where a time leads, and where groups stand.

Source: RocketMQ 5.3, ``AdminBrokerProcessor``, ``ConsumerManageProcessor``. Unlike there, a group
that never committed stands nowhere (null), not at 0.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from eruca.contract.errors import ConflictError, QueueNotFoundError, TopicNotFoundError
from eruca.contract.groups import CommittedOffset, GroupOffsets, OffsetCommits
from eruca.contract.models import (
    OffsetByTime,
    QueueOffsets,
    TopicQueues,
)
from eruca_broker.core import events
from eruca_broker.core.times import moment, ms_of
from eruca_broker.processors.topics import Topics
from eruca_broker.store.message_store import MessageStore


class Offsets:
    """Offsets of this broker's queues, and of groups in them."""

    def __init__(self, store: MessageStore, topics: Topics, *, groups_max: int) -> None:
        self._store = store
        self._groups_max = groups_max
        self._topics = topics

    def of_topic(self, name: str) -> TopicQueues:
        """Return first and next offset of each of a topic's queues."""
        topic = self._topics.get(name)
        queue_count = max(topic.read_queue_count, topic.write_queue_count)
        return TopicQueues(
            topic=name, queues=[self._of_queue(name, queue_id) for queue_id in range(queue_count)]
        )

    def by_time(
        self, name: str, queue_id: int, timestamp: datetime, boundary: Literal["lower", "upper"]
    ) -> OffsetByTime:
        """Return the offset *timestamp* leads to, by the broker's clock when it stored them.

        ``lower``: of the first message stored at that time or later, or the queue's end.
        ``upper``: of the last message stored at that time or earlier, or the queue's begin.
        """
        self._topics.check_queue(self._topics.get(name), queue_id)
        offset = self._store.offset_by_time(
            name, queue_id, ms_of(timestamp), upper=boundary == "upper"
        )
        return OffsetByTime(
            topic=name, queue_id=queue_id, timestamp=timestamp, boundary=boundary, offset=offset
        )

    def of_group(self, group: str, topic: str | None) -> GroupOffsets:
        """Return a group's positions: in every queue of *topic*, or wherever it ever committed.

        Raises:
            TopicNotFoundError: *topic* is given, and there is none of this name.
        """
        if topic is not None:
            queue_count = self._topics.get(topic).read_queue_count
            queues = [(topic, queue_id) for queue_id in range(queue_count)]
        else:
            queues = sorted(self._store.state.group_offsets(group))
        return GroupOffsets(
            group=group, offsets=[self._committed(group, name, q) for name, q in queues]
        )

    async def commit(self, group: str, commits: OffsetCommits) -> None:
        """Store a group's positions, all or none; durable on return.

        A position may lie anywhere, also before the last one or beyond the queue's end.

        Raises:
            TopicNotFoundError, QueueNotFoundError: One of the queues is not on this broker.
            ConflictError: The group is new, and there are as many groups as are allowed.
        """
        for index, commit in enumerate(commits.offsets):
            pointer = f"/body/offsets/{index}"
            try:
                self._topics.check_queue(self._topics.get(commit.topic), commit.queue_id)
            except (TopicNotFoundError, QueueNotFoundError) as error:
                error.errors = [{"pointer": pointer, "detail": error.detail}]
                raise
        state = self._store.state
        if not state.group_offsets(group) and len(list(state.groups)) >= self._groups_max:
            raise ConflictError(
                f"group {group!r} is not created: groups_max, {self._groups_max}, are there",
                fix="raise ERUCA_BROKER_GROUPS_MAX",
            )
        await self._store.change(
            events.OffsetsCommitted(
                group,
                [
                    events.CommittedOffset(commit.topic, commit.queue_id, commit.offset)
                    for commit in commits.offsets
                ],
            )
        )

    def _of_queue(self, topic: str, queue_id: int) -> QueueOffsets:
        first, end = self._store.queue_range(topic, queue_id)
        earliest = self._store.stored_at_ms(topic, queue_id, first) if first < end else None
        latest = self._store.stored_at_ms(topic, queue_id, end - 1) if first < end else None
        return QueueOffsets(
            queue_id=queue_id,
            min_offset=first,
            max_offset=end,
            earliest_stored_at=None if earliest is None else moment(earliest),
            latest_stored_at=None if latest is None else moment(latest),
        )

    def _committed(self, group: str, name: str, queue_id: int) -> CommittedOffset:
        committed = self._store.state.committed_offset(group, name, queue_id)
        topic = self._store.state.topics.get(name)
        if topic is None or queue_id >= max(topic.read_queue_count, topic.write_queue_count):
            return CommittedOffset(
                topic=name,
                queue_id=queue_id,
                committed_offset=committed,
                min_offset=None,
                max_offset=None,
                lag=None,
            )
        first, end = self._store.queue_range(name, queue_id)
        return CommittedOffset(
            topic=name,
            queue_id=queue_id,
            committed_offset=committed,
            min_offset=first,
            max_offset=end,
            lag=None if committed is None else max(end - committed, 0),
        )
