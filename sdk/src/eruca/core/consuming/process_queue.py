"""The messages of one queue that a consumer holds, and the offset that it may commit.

Messages arrive in the order of their offsets and complete in any order. The committable offset is
the offset of the first held message; if none is held, the offset of the next pull, so that messages
excluded by a filter do not hold the group back. **It never passes an incomplete message**, and it
never decreases.

Messages that were handled and wait for a commit are *kept*: they are held, and no handler works on
them.

Source: RocketMQ 5.3, ``ProcessQueue``.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """A held message: it has a place in the queue and a size."""

    @property
    def queue_offset(self) -> int:
        """Index in the queue."""

    @property
    def size(self) -> int:
        """Size in bytes."""


M = TypeVar("M", bound=Queued)


class ProcessQueue(Generic[M]):
    """The held messages of one queue; not thread-safe.

    Args:
        next_offset: Offset of the first pull.
    """

    __slots__ = ("_held", "_kept", "_offsets", "kept_size", "next_offset", "size")

    def __init__(self, next_offset: int) -> None:
        self._held: dict[int, M] = {}
        self._offsets: deque[int] = deque()  # ascending; completed ones stay until they are first
        self.next_offset = next_offset  # of the next pull
        self.size = 0  # bytes held
        self._kept: set[int] = set()  # offsets of held messages
        self.kept_size = 0  # bytes

    def __contains__(self, message: object) -> bool:
        return self._held.get(getattr(message, "queue_offset", -1)) is message

    @property
    def count(self) -> int:
        """Number of held messages."""
        return len(self._held)

    @property
    def kept_count(self) -> int:
        """Number of kept messages among the held ones."""
        return len(self._kept)

    @property
    def offsets(self) -> list[int]:
        """The offsets of the held messages, ascending."""
        return sorted(self._held)

    @property
    def span(self) -> int:
        """The distance from the first held message to the last."""
        return self._offsets[-1] - self._offsets[0] if self._held else 0

    @property
    def commit_offset(self) -> int:
        """The committable offset: all messages before it are complete."""
        return self._offsets[0] if self._offsets else self.next_offset

    def put(self, messages: Sequence[M], next_offset: int) -> int:
        """Add pulled messages, in order; return their bytes."""
        offsets = self._offsets
        added = [message.queue_offset for message in messages]
        before = [offsets[-1] if offsets else -1, *added]
        assert all(map(operator.lt, before, added)), "offsets of a queue only grow"
        self._held.update(zip(added, messages, strict=True))
        offsets.extend(added)
        size = sum(message.size for message in messages)
        assert next_offset >= self.next_offset
        assert not offsets or next_offset > offsets[-1], "what is held would be pulled again"
        self.next_offset = next_offset
        self.size += size
        return size

    def remove(self, messages: Iterable[M]) -> int:
        """Remove the completed *messages* that are held; return their bytes."""
        held, offsets, kept, size = self._held, self._offsets, self._kept, 0
        before = self.commit_offset
        for message in messages:
            offset = message.queue_offset
            if held.get(offset) is message:  # after a restart another message may have the offset
                del held[offset]
                size += message.size
                if kept and offset in kept:
                    kept.discard(offset)
                    self.kept_size -= message.size
        while offsets and offsets[0] not in held:
            offsets.popleft()
        self.size -= size
        assert before <= self.commit_offset <= self.next_offset, "a commit goes back, or too far"
        assert 0 <= self.kept_size <= self.size, "what is kept is held"
        return size

    def keep(self, messages: Iterable[M]) -> None:
        """Mark the held *messages* as handled: they wait for a commit."""
        for message in messages:
            if message in self and message.queue_offset not in self._kept:
                self._kept.add(message.queue_offset)
                self.kept_size += message.size

    def keep_none(self) -> None:
        """Mark all held messages as not handled."""
        self._kept.clear()
        self.kept_size = 0

    def clear(self) -> int:
        """Drop all held messages; return their bytes. The committable offset stays the same."""
        return self.restart(self.commit_offset)

    def restart(self, next_offset: int) -> int:
        """Drop all held messages, and continue at *next_offset*; return the dropped bytes."""
        assert next_offset >= 0
        self.next_offset = next_offset
        size, self.size = self.size, 0
        self._held.clear()
        self._offsets.clear()
        self.keep_none()
        return size
