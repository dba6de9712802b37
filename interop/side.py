"""The common interface of RocketMQ's client and Eruca's, and the expected contents of a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

from interop.messages import Message, NewMessage, Receipt

QUEUE_COUNT: Final = 4  # of every topic
GROUP: Final = "interop-group"

By = Literal["key", "unique_id", "offset_id"]


class Side(Protocol):
    """One side's broker, through its client."""

    name: str

    def create_topic(self, topic: str, queue_count: int) -> None:
        """Create *topic*."""

    def send(self, messages: Sequence[NewMessage]) -> list[Receipt]:
        """Send the messages one by one."""

    def send_batch(self, messages: Sequence[NewMessage]) -> list[Receipt]:
        """Send all messages at once to one queue."""

    def read_topic(self, topic: str) -> list[Message]:
        """Return every message of every queue."""

    def queue_ranges(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return each queue's first and next offset."""

    def find(self, by: By, topic: str, values: Sequence[str]) -> dict[str, list[Message]]:
        """Look up each key or id; return the messages found."""

    def consume(
        self, topic: str, *, group: str, count: int, expression: str = "*"
    ) -> list[Message]:
        """Return *count* messages from the group's offsets on, and commit the new offsets."""

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return a group's committed offsets above 0, by queue."""

    def offsets_by_time(self, topic: str, queue_id: int, times_ms: Sequence[int]) -> list[int]:
        """Return the first offset stored at or after each time."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The expected contents of a store, for either side."""

    messages: list[Message]
    ends: Mapping[tuple[str, int], int]  # (topic, queue) → next offset
    committed: Mapping[int, int] = field(default_factory=dict)  # GROUP's in the flights, by queue
    undecided: str | None = None  # id of a transaction with a half message and no decision

    @property
    def topics(self) -> list[str]:
        """The topics, sorted by name."""
        return sorted({topic for topic, _ in self.ends})

    def of_topic(self, topic: str) -> list[Message]:
        """Return one topic's messages."""
        return [message for message in self.messages if message.topic == topic]

    def ranges(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return first and next offset of the topic's queues that ever had a message."""
        starts: dict[int, int] = {}
        for message in self.of_topic(topic):
            first = starts.get(message.queue_id, message.queue_offset)
            starts[message.queue_id] = min(first, message.queue_offset)
        return {
            queue_id: (starts.get(queue_id, end), end)
            for (name, queue_id), end in sorted(self.ends.items())
            if name == topic
        }

    def before_log_offset(self, log_offset: int) -> Contents:
        """Return the contents after truncating the log at *log_offset*."""
        left = [m for m in self.messages if m.origin and m.origin.log_offset < log_offset]
        return replace(self, messages=left, ends=ends_of(left))

    def from_log_offset(self, log_offset: int) -> Contents:
        """Return the contents after deleting the log before *log_offset*."""
        left = [m for m in self.messages if m.origin and m.origin.log_offset >= log_offset]
        return replace(self, messages=left)


def ends_of(messages: Iterable[Message]) -> dict[tuple[str, int], int]:
    """Return the next offset of each queue that has messages."""
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for message in messages:
        queue = message.topic, message.queue_id
        ends[queue] = max(ends[queue], message.queue_offset + 1)
    return dict(ends)
