"""What RocketMQ's client and Eruca's interface have in common, and what a store holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from interop.messages import Message, NewMessage, Receipt

QUEUE_COUNT: Final = 4  # of every topic
GROUP: Final = "interop-group"

By = Literal["key", "unique_id", "offset_id"]


class Side(Protocol):
    """One side's broker, as its client sees it."""

    name: str

    def create_topic(self, topic: str, queue_count: int) -> None:
        """Create *topic*."""

    def send(self, messages: Sequence[NewMessage]) -> list[Receipt]:
        """Send one after another."""

    def send_batch(self, messages: Sequence[NewMessage]) -> list[Receipt]:
        """Send all at once to one queue."""

    def read_topic(self, topic: str) -> list[Message]:
        """Return every message of every queue."""

    def queue_ranges(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return each queue's first and next offset."""

    def find(self, by: By, topic: str, values: Sequence[str]) -> dict[str, list[Message]]:
        """Return what each key or id leads to."""

    def consume(
        self, topic: str, *, group: str, count: int, expression: str = "*"
    ) -> list[Message]:
        """Return *count* messages from where the group is, and commit where it is then."""

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return a group's committed offset in each queue where it has one above 0."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a store must give to whoever opens it."""

    messages: list[Message]
    committed: dict[int, int]  # GROUP's offsets in the flights, by queue

    @property
    def topics(self) -> list[str]:
        """The topics, by name."""
        return sorted({message.topic for message in self.messages})

    def of_topic(self, topic: str) -> list[Message]:
        """Return one topic's messages."""
        return [message for message in self.messages if message.topic == topic]
