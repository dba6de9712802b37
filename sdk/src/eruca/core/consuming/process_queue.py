"""What a consumer has taken from one queue and is not done with, and the offset it may commit.

Messages come in the order of their offsets and are done with in any order. The offset that may be
committed is that of the first message still held; where none is held, the one that is pulled next,
so that messages a filter kept back do not hold the group up. **It never passes a message that is
not done with**, and it never goes back.

Messages that were handled and wait for a commit are *kept*: they are held, and nobody works on
them.

Source: RocketMQ 5.3, ``ProcessQueue``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """What is held: something with a place in the queue, and a size."""

    @property
    def queue_offset(self) -> int:
        """Its index in the queue."""

    @property
    def size(self) -> int:
        """Its bytes."""


M = TypeVar("M", bound=Queued)


class ProcessQueue(Generic[M]):
    """The messages of one queue that are held; not thread-safe.

    Args:
        next_offset: Where the first pull begins.
    """

    __slots__ = ("_held", "_kept", "_offsets", "kept_size", "next_offset", "size")

    def __init__(self, next_offset: int) -> None:
        self._held: dict[int, M] = {}
        self._offsets: deque[int] = deque()  # ascending; done ones stay until they are in front
        self.next_offset = next_offset  # where the next pull begins
        self.size = 0  # bytes held
        self._kept: set[int] = set()  # offsets of messages that are held
        self.kept_size = 0  # bytes

    def __contains__(self, message: object) -> bool:
        return self._held.get(getattr(message, "queue_offset", -1)) is message

    @property
    def count(self) -> int:
        """Messages held."""
        return len(self._held)

    @property
    def kept_count(self) -> int:
        """Messages kept, of those held."""
        return len(self._kept)

    @property
    def offsets(self) -> list[int]:
        """The offsets of what is held, ascending."""
        return sorted(self._held)

    @property
    def span(self) -> int:
        """The distance from the first message held to the last."""
        return self._offsets[-1] - self._offsets[0] if self._held else 0

    @property
    def commit_offset(self) -> int:
        """The offset that may be committed: everything before it is done with."""
        return self._offsets[0] if self._offsets else self.next_offset

    def put(self, messages: Iterable[M], next_offset: int) -> int:
        """Take in what a pull brought, in order; return its bytes."""
        held, offsets, size = self._held, self._offsets, 0
        for message in messages:
            offset = message.queue_offset
            assert not offsets or offset > offsets[-1], "offsets of a queue only grow"
            held[offset] = message
            offsets.append(offset)
            size += message.size
        assert next_offset >= self.next_offset
        self.next_offset = next_offset
        self.size += size
        return size

    def remove(self, messages: Iterable[M]) -> int:
        """Note that *messages* are done with, those that are held; return their bytes."""
        held, offsets, kept, size = self._held, self._offsets, self._kept, 0
        for message in messages:
            offset = message.queue_offset
            if held.get(offset) is message:  # a queue that began anew has others of its offset
                del held[offset]
                size += message.size
                if offset in kept:
                    kept.discard(offset)
                    self.kept_size -= message.size
        while offsets and offsets[0] not in held:
            offsets.popleft()
        self.size -= size
        return size

    def keep(self, messages: Iterable[M]) -> None:
        """Note that *messages* have been handled, those that are held, and wait for a commit."""
        for message in messages:
            if message in self and message.queue_offset not in self._kept:
                self._kept.add(message.queue_offset)
                self.kept_size += message.size

    def keep_none(self) -> None:
        """Note that whatever is held is to be handled, again or for the first time."""
        self._kept.clear()
        self.kept_size = 0

    def clear(self) -> int:
        """Forget everything held; return its bytes. What may be committed stays where it is."""
        return self.restart(self.commit_offset)

    def restart(self, next_offset: int) -> int:
        """Forget everything held, and go on at *next_offset*; return the bytes forgotten."""
        self.next_offset = next_offset
        size, self.size = self.size, 0
        self._held.clear()
        self._offsets.clear()
        self.keep_none()
        return size
