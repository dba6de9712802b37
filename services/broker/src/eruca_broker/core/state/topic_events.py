"""Control records of topics, and the entries of topics and queues in snapshots."""

from __future__ import annotations

import msgspec


class OrderConfig(msgspec.Struct, frozen=True):
    """The queues on all brokers over which an ordered topic's sharding keys are divided."""

    version: int
    queues: tuple[tuple[str, int], ...]  # broker names and the number of queues of each, by name

    @property
    def queue_count(self) -> int:
        """Return the number of queues of all brokers together."""
        return sum(count for _, count in self.queues)

    def place_of(self, index: int) -> tuple[str, int]:
        """Return the broker and the queue that have number *index* among all."""
        for broker_name, count in self.queues:
            if index < count:
                return broker_name, index
            index -= count
        raise IndexError(index)


class TopicPut(msgspec.Struct, frozen=True, tag="topic_put", tag_field="event"):
    """A topic was created or its settings were replaced."""

    topic: str
    read_queue_count: int
    write_queue_count: int
    permission: str
    ordered: bool = False
    order_config: OrderConfig | None = None


class TopicDeleted(msgspec.Struct, frozen=True, tag="topic_deleted", tag_field="event"):
    """A topic was deleted: its queues are gone, and so is all that groups had in them.

    A topic of the same name created later starts at offset 0 again.
    """

    topic: str


class SnapshotTopic(msgspec.Struct, frozen=True):
    """A topic in a snapshot."""

    topic: str
    read_queue_count: int
    write_queue_count: int
    permission: str
    ordered: bool
    created_at: int  # log offset of the event that created it
    order_config: OrderConfig | None = None


class QueueEnd(msgspec.Struct, frozen=True, array_like=True):
    """The offset of a queue's next message: a log truncated by retention does not contain it."""

    topic: str
    queue_id: int
    next_offset: int
