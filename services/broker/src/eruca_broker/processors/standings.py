"""Positions of groups in a broker's queues: the unread and the lost messages."""

from __future__ import annotations

from typing import NamedTuple

from eruca.contract.names import retry_topic
from eruca_broker.core.state.group_state import Group, Queue
from eruca_broker.store.message_store import MessageStore


class Standing(NamedTuple):
    """Position of a group in a queue of this broker."""

    position: int | None  # the next offset to read; None: it has not begun
    first: int  # offset of the first stored message
    end: int  # offset of the next message

    @property
    def lag(self) -> int | None:
        """Return the number of messages it can still read; None if it has not begun."""
        if self.position is None:
            return None
        return max(self.end - max(self.position, self.first), 0)

    @property
    def lost(self) -> int:
        """Return the number of unread messages that are deleted."""
        return 0 if self.position is None else max(self.first - self.position, 0)


def standing(store: MessageStore, group: Group, queue: Queue) -> Standing | None:
    """Return a group's position in a queue; None if the queue is not on this broker."""
    name, queue_id = queue
    topic = store.state.topics.get(name)
    if topic is None:
        return None
    first, end = store.queues.range(name, queue_id)
    # A queue that is no longer read still counts while it has messages: they are unread.
    if queue_id >= max(topic.read_queue_count, topic.write_queue_count) and first == end:
        return None
    return Standing(position_of(group, queue), first, end)


def position_of(group: Group, queue: Queue) -> int | None:
    """Return the next offset that a group reads; None: it has not begun."""
    position = group.position(queue)
    if position is None and queue[0] == retry_topic(group.name):
        return 0  # every group begins there in its own retry topic
    return position


def unread_count(store: MessageStore, group: Group, queue: Queue) -> int:
    """Return the number of a queue's messages that a group has still to read, perhaps 0."""
    topic, _ = queue
    stands = standing(store, group, queue)
    if stands is None:
        return 0
    if stands.lag is not None:
        return stands.lag
    # It reads the topic, and has not begun with this queue: its initial offset is unknown.
    return stands.end - stands.first if topic in group.met else 0


def queues_of(group: Group) -> list[Queue]:
    """Return the queues in which a group has any data, in order."""
    return sorted(group.offsets.keys() | group.starts.keys() | group.locks.keys())
