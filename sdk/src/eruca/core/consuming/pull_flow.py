"""A pull consumer's state of one queue: its position and its prefetched messages.

The *position* is the offset of the next message for the user. The prefetched messages start there.
The *fetch offset* is the offset of the next pull. A seek changes all of them and starts a new
*epoch*, so that the answer to an earlier pull is recognised and dropped. A paused queue prefetches
nothing, because its messages would take the room of the other queues.

Source: RocketMQ 5.3, ``AssignedMessageQueue``, ``ProcessQueue``.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime

from eruca.contract.errors import ErucaError
from eruca.core.consuming.pull_positions import StartPosition
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage


class QueueFlow:
    """One queue of a consumer; not thread-safe.

    Args:
        queue: The queue.
        start: Start position, if there is no other.
        use_committed: True if the group's committed offset comes before *start*.
        offset: Start offset, if it is already known.
        came_after: Start time of the consumer, if the queue appeared later; else None.
    """

    __slots__ = (
        "_chunks",
        "behind_bytes",
        "came_after",
        "count",
        "epoch",
        "fault",
        "fetch_offset",
        "is_paused",
        "is_pulling",
        "queue",
        "size",
        "start",
        "use_committed",
    )

    def __init__(
        self,
        queue: MessageQueue,
        start: StartPosition | datetime,
        *,
        use_committed: bool,
        offset: int | None = None,
        came_after: datetime | None = None,
    ) -> None:
        self.queue = queue
        self.start = start
        self.use_committed = use_committed
        self.came_after = came_after
        self.fetch_offset = offset  # None: not resolved yet
        self.count = 0  # prefetched messages
        self.size = 0  # bytes of their records
        self.behind_bytes = 0  # of the messages that are not pulled yet, estimated by the last pull
        self.epoch = 0
        self.is_paused = False
        self.is_pulling = False
        self.fault: ErucaError | None = None  # stops reading; a seek clears it
        self._chunks: deque[list[ReceivedMessage]] = deque()

    @property
    def position(self) -> int | None:
        """The offset of the next message for the user; None while it is unknown."""
        return self._chunks[0][0].queue_offset if self._chunks else self.fetch_offset

    def has_room(self, count_max: int) -> bool:
        """Return whether to pull more: less than half of the limit is prefetched.

        A paused queue still resolves its start position.
        """
        return (
            not self.is_pulling
            and (not self.is_paused or self.fetch_offset is None)
            and self.fault is None
            and self.count <= count_max // 2
        )

    def put(self, messages: list[ReceivedMessage], next_offset: int, epoch: int) -> int:
        """Add a pull's answer; return the added bytes, 0 for an outdated answer."""
        if epoch != self.epoch:
            return 0
        before, self.fetch_offset = self.fetch_offset, next_offset
        if not messages:
            return 0
        assert before is None or before <= messages[0].queue_offset, "read again"
        assert messages[-1].queue_offset < next_offset, "it would be pulled again"
        size = sum(message.size for message in messages)
        self._chunks.append(messages)
        self.count += len(messages)
        self.size += size
        return size

    def put_damaged(self, damage: str, next_offset: int, epoch: int) -> int:
        """Add a damaged message, which precedes *next_offset*, as :meth:`put` does others."""
        message = ReceivedMessage.damaged(self.queue, next_offset - 1, damage)
        return self.put([message], next_offset, epoch)

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Return up to *count_max* messages."""
        taken: list[ReceivedMessage] = []
        while self._chunks and len(taken) < count_max:
            chunk = self._chunks.popleft()
            room = count_max - len(taken)
            if len(chunk) > room:
                self._chunks.appendleft(chunk[room:])
                chunk = chunk[:room]
            taken += chunk
        self.count -= len(taken)
        self.size -= sum(message.size for message in taken)
        assert self.count >= 0
        assert (self.count == 0) == (not self._chunks), "the count is not that of what is ready"
        return taken

    def give_back(self, messages: list[ReceivedMessage]) -> None:
        """Put back the last taken messages, which the user has not received."""
        if messages:
            self._chunks.appendleft(messages)
            self.count += len(messages)
            self.size += sum(message.size for message in messages)

    def pause(self) -> None:
        """Drop prefetched messages and stop prefetching; the position stays."""
        position = self.position
        self._restart()
        self.fetch_offset = position
        self.is_paused = True

    def resume(self) -> None:
        """Continue after a pause."""
        self.is_paused = False

    def seek(self, offset: int) -> None:
        """Move to *offset* and drop prefetched messages."""
        self._restart()
        self.fetch_offset = offset

    def seek_to(self, start: StartPosition | datetime) -> None:
        """Move to *start*, whatever the group has committed; its offset is resolved later."""
        self._restart()
        self.fetch_offset = None
        self.start = start
        self.use_committed = False
        self.came_after = None

    def start_over(self) -> None:
        """Read from the beginning: the topic was deleted, so a later one of its name is new."""
        self.fetch_offset = 0

    def _restart(self) -> None:
        self.epoch += 1
        self.fault = None
        self._chunks.clear()
        self.count = self.size = 0
