"""The current batch: track its messages that a program has received and completed.

A poll returns all messages at once. An iteration returns them one by one; requesting the next
message completes the one before. A message that was not returned must not be committed. A message
that is not completed must not be committed without an explicit call.

An iteration in another thread advances the batch while the event loop reads it. Each number is
stored atomically, and a number that is one message old is only too cautious.
"""

from __future__ import annotations

from collections.abc import Collection

from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage


class HandedBatch:
    """The messages taken last, in the order in which the program receives them."""

    __slots__ = ("done_count", "handed_count", "messages")

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.handed_count = 0
        self.done_count = 0

    @property
    def has_unread(self) -> bool:
        """True if the program has not received all messages."""
        return self.handed_count < len(self.messages)

    @property
    def unread(self) -> list[ReceivedMessage]:
        """The messages that the program has not received."""
        return self.messages[self.handed_count :]

    def replace(self, messages: list[ReceivedMessage]) -> None:
        """Replace the batch by *messages*, none of them received yet."""
        self.messages = messages
        self.handed_count = self.done_count = 0

    def hand_out_all(self) -> list[ReceivedMessage]:
        """Return all messages and mark them as received."""
        self.handed_count = len(self.messages)
        return self.messages

    def hand_out_one(self) -> ReceivedMessage:
        """Return the next message; mark the one before as completed."""
        assert self.has_unread
        self.done_count = self.handed_count
        self.handed_count += 1
        return self.messages[self.done_count]

    def finish_handed(self) -> None:
        """Mark all received messages as completed."""
        self.done_count = self.handed_count

    def withdraw(self, queues: Collection[MessageQueue]) -> list[ReceivedMessage]:
        """Remove and return the messages of *queues* that were not received."""
        unread = self.unread
        kept = [message for message in unread if message.queue not in queues]
        self.messages = self.messages[: self.handed_count] + kept
        return [message for message in unread if message.queue in queues]

    def forget(self, queues: Collection[MessageQueue]) -> None:
        """Drop the messages of *queues*, whose position has moved."""
        kept = [(i, m) for i, m in enumerate(self.messages) if m.queue not in queues]
        handed_count = sum(index < self.handed_count for index, _ in kept)
        done_count = sum(index < self.done_count for index, _ in kept)
        self.messages = [message for _, message in kept]
        assert done_count <= handed_count <= len(kept), "something would be done with unseen"
        self.handed_count, self.done_count = handed_count, done_count

    def first_offsets_from(self, count: int) -> dict[MessageQueue, int]:
        """Return for each queue the offset of its first message behind the first *count*."""
        offsets: dict[MessageQueue, int] = {}
        for message in self.messages[count:]:
            offsets.setdefault(message.queue, message.queue_offset)
        return offsets
