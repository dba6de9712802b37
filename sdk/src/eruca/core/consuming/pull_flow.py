"""What a pull consumer knows of one queue: where it reads, and what it holds ready.

Three offsets in order: the *position* is the next message a user gets; the messages held ready lie
from there on; the *fetch offset* is where the next pull begins. A seek changes them all at once and
starts a new *epoch*, so that the answer to a pull from before is recognised and dropped. While a
queue is paused nothing is held ready: it would take the room of those that are not.

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
        queue: Which.
        start: Where to begin, if nothing else says so.
        use_committed: Whether the group's committed offset says so.
        offset: Where to begin, if that is known already.
        came_after: When its consumer began, if the queue came to it later; None: it was there.
    """

    __slots__ = (
        "_chunks",
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
        self.fetch_offset = offset  # None: still to be found out
        self.count = 0  # messages held ready
        self.size = 0  # bytes of their records
        self.epoch = 0
        self.is_paused = False
        self.is_pulling = False
        self.fault: ErucaError | None = None  # why it cannot be read on; a seek mends it
        self._chunks: deque[list[ReceivedMessage]] = deque()

    @property
    def position(self) -> int | None:
        """The offset of the next message a user gets; None while it is not known."""
        return self._chunks[0][0].queue_offset if self._chunks else self.fetch_offset

    def has_room(self, count_max: int) -> bool:
        """Tell whether to pull more: half of what may be held ready is missing.

        Where a paused queue begins is asked for all the same.
        """
        return (
            not self.is_pulling
            and (not self.is_paused or self.fetch_offset is None)
            and self.fault is None
            and self.count <= count_max // 2
        )

    def put(self, messages: list[ReceivedMessage], next_offset: int, epoch: int) -> int:
        """Take in a pull's answer; return the bytes now held more, 0 for an outdated answer."""
        if epoch != self.epoch:
            return 0
        self.fetch_offset = next_offset
        if not messages:
            return 0
        size = sum(message._size for message in messages)
        self._chunks.append(messages)
        self.count += len(messages)
        self.size += size
        return size

    def put_damaged(self, damage: str, next_offset: int, epoch: int) -> int:
        """Take in that the message before *next_offset* is damaged, as :meth:`put` does others."""
        message = ReceivedMessage.damaged(self.queue, next_offset - 1, damage)
        return self.put([message], next_offset, epoch)

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Hand out up to *count_max* messages."""
        taken: list[ReceivedMessage] = []
        while self._chunks and len(taken) < count_max:
            chunk = self._chunks.popleft()
            room = count_max - len(taken)
            if len(chunk) > room:
                self._chunks.appendleft(chunk[room:])
                chunk = chunk[:room]
            taken += chunk
        self.count -= len(taken)
        self.size -= sum(message._size for message in taken)
        return taken

    def give_back(self, messages: list[ReceivedMessage]) -> None:
        """Put messages back in front that were taken last and have not been handed out."""
        if messages:
            self._chunks.appendleft(messages)
            self.count += len(messages)
            self.size += sum(message._size for message in messages)

    def pause(self) -> None:
        """Hold nothing ready until it is resumed; the position stays."""
        position = self.position
        self._restart()
        self.fetch_offset = position
        self.is_paused = True

    def resume(self) -> None:
        """Go on where it was paused."""
        self.is_paused = False

    def seek(self, offset: int) -> None:
        """Go to *offset*; what is held ready is dropped."""
        self._restart()
        self.fetch_offset = offset

    def seek_to(self, start: StartPosition | datetime) -> None:
        """Go to where *start* is, whatever the group has committed; it is to be found out."""
        self._restart()
        self.fetch_offset = None
        self.start = start
        self.use_committed = False
        self.came_after = None

    def begin_anew(self) -> None:
        """Read from the beginning: the topic is gone, and if one of its name comes, it is new."""
        self.fetch_offset = 0

    def _restart(self) -> None:
        self.epoch += 1
        self.fault = None
        self._chunks.clear()
        self.count = self.size = 0
