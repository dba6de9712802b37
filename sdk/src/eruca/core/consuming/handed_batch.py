"""The batch in hand: which of its messages a program has got, and which it is done with.

A poll hands out all of them at once; an iteration hands them out one by one, and asking for the
next says that the one before is done with. What has not been handed out must not be committed, and
what is not done with must not be committed without being told to.

An iteration in another thread advances it while the event loop reads it: each number is stored
whole, and one that is a message old is only too careful.
"""

from __future__ import annotations

from collections.abc import Collection

from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage


class HandedBatch:
    """The messages taken last, in the order they are handed out."""

    __slots__ = ("done_count", "handed_count", "messages")

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.handed_count = 0
        self.done_count = 0

    @property
    def has_unread(self) -> bool:
        """Whether some have not been handed out."""
        return self.handed_count < len(self.messages)

    @property
    def unread(self) -> list[ReceivedMessage]:
        """Those that have not been handed out."""
        return self.messages[self.handed_count :]

    def replace(self, messages: list[ReceivedMessage]) -> None:
        """Begin anew with *messages*, none of them handed out."""
        self.messages = messages
        self.handed_count = self.done_count = 0

    def hand_out_all(self) -> list[ReceivedMessage]:
        """Hand out all of them."""
        self.handed_count = len(self.messages)
        return self.messages

    def hand_out_one(self) -> ReceivedMessage:
        """Hand out the next; the one before is done with."""
        self.done_count = self.handed_count
        self.handed_count += 1
        return self.messages[self.done_count]

    def finish_handed(self) -> None:
        """Note that all that have been handed out are done with."""
        self.done_count = self.handed_count

    def withdraw(self, queues: Collection[MessageQueue]) -> list[ReceivedMessage]:
        """Take out and return what has not been handed out of *queues*."""
        unread = self.unread
        kept = [message for message in unread if message.queue not in queues]
        self.messages = self.messages[: self.handed_count] + kept
        return [message for message in unread if message.queue in queues]

    def forget(self, queues: Collection[MessageQueue]) -> None:
        """Drop the messages of *queues*, which are read from elsewhere now."""
        kept = [(i, m) for i, m in enumerate(self.messages) if m.queue not in queues]
        handed_count = sum(index < self.handed_count for index, _ in kept)
        done_count = sum(index < self.done_count for index, _ in kept)
        self.messages = [message for _, message in kept]
        self.handed_count, self.done_count = handed_count, done_count

    def first_offsets_from(self, count: int) -> dict[MessageQueue, int]:
        """Return for each queue the offset of its first message behind the first *count*."""
        offsets: dict[MessageQueue, int] = {}
        for message in self.messages[count:]:
            offsets.setdefault(message.queue, message.queue_offset)
        return offsets
