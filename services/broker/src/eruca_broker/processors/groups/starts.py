"""Initial offsets of a group: settled once, when it first uses a topic, and never again.

A group meets a topic when its first member that subscribes to it joins, or when it locks a queue of
it. The initial offsets are recorded with their reasons:

* existing queues: according to the group's ``start``;
* queues that are added later, also those of a topic that is created later: their beginning, because
  the group was waiting for their messages;
* a topic in which the group has committed offsets already: the beginning of its other queues;
* the group's own retry topic: its beginning, because the group has sent back everything in it;
* a topic that the group has met at another broker, as its members say: the messages stored here
  since then.

Source: RocketMQ 5.3, ``RebalancePushImpl.computePullFromWhere``. There each client decides, each
time it finds no offset, and a queue added late loses its first messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from eruca.contract.errors import ConflictError
from eruca.contract.limits import GROUP_TOPIC_COUNT_MAX
from eruca.contract.names import retry_topic
from eruca_broker.core.state.group_events import QueueStart, StartsResolved, TopicStarts
from eruca_broker.core.state.group_state import Group, Queue
from eruca_broker.store.message_store import MessageStore


class Starts:
    """Settles the initial offsets of groups in this broker's queues."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def of_topics(
        self, group: Group, topics: Iterable[str], since_ms: Mapping[str, int], *, now_ms: int
    ) -> StartsResolved | None:
        """Return the event that settles the starts in all *topics*, or None if none is needed.

        Args:
            group: The group.
            topics: Topics, which need not exist here.
            since_ms: The time at which the group met some of them at another broker.
            now_ms: The wall clock.

        Raises:
            ConflictError: The group has met the maximum number of topics.
        """
        resolved = []
        for topic in topics:
            starts = list(self._of_topic(group, topic, since_ms.get(topic)))
            if starts or topic not in group.met:
                resolved.append(TopicStarts(topic, starts))
        new = sum(entry.topic not in group.met for entry in resolved)
        if new and len(group.met) + new > GROUP_TOPIC_COUNT_MAX:
            raise ConflictError(
                f"group {group.name!r} has met {len(group.met)} topics; the maximum is "
                f"{GROUP_TOPIC_COUNT_MAX}",
                fix="use another group",
            )
        return StartsResolved(group.name, resolved, now_ms) if resolved else None

    def _of_topic(self, group: Group, name: str, since_ms: int | None) -> Iterator[QueueStart]:
        topic = self._store.state.topics.get(name)
        if topic is None:
            return
        is_known = (
            name in group.met
            or name == retry_topic(group.name)
            or any(queue[0] == name for queue in group.offsets)
        )
        for queue_id in range(topic.read_queue_count):
            if group.position((name, queue_id)) is not None:
                continue
            if is_known:
                yield QueueStart(queue_id, self._store.queues.range(name, queue_id)[0], "added")
            else:
                yield self._start(group, (name, queue_id), since_ms)

    def _start(self, group: Group, queue: Queue, since_ms: int | None) -> QueueStart:
        start = group.settings.start
        if isinstance(start, int):
            return QueueStart(queue[1], self._store.places.offset_by_time(*queue, start), "time")
        if start == "earliest":
            return QueueStart(queue[1], self._store.queues.range(*queue)[0], "earliest")
        if since_ms is not None:
            return QueueStart(
                queue[1], self._store.places.offset_by_time(*queue, since_ms), "since"
            )
        return QueueStart(queue[1], self._store.queues.local_range(*queue)[1], "latest")
