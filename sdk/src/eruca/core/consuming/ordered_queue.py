"""One queue of an orderly consumer: its waiting messages and its uncommitted ones.

One handler at a time takes messages, in order. With automatic commits, a handler's success commits
its messages. Without, they stay *uncommitted* until a handler returns COMMIT, and ROLLBACK puts all
of them back. Several batches taken at a time are committed separately.

Source: RocketMQ 5.3, ``ProcessQueue`` (``takeMessages``, ``commit``, ``rollback``,
``makeMessageToConsumeAgain``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, Generic

from eruca.core.consuming.process_queue import M, ProcessQueue

_queue_offset: Final = attrgetter("queue_offset")


class OrderedQueue(Generic[M]):
    """The messages of one queue, returned in order; not thread-safe.

    Args:
        held: The process queue that counts the messages and their committable offset.
    """

    __slots__ = ("_uncommitted", "_waiting", "held")

    def __init__(self, held: ProcessQueue[M]) -> None:
        self.held = held
        self._waiting: deque[M] = deque()
        self._uncommitted: list[M] = []  # taken, in order

    @property
    def waiting(self) -> list[M]:
        """The messages that were not taken, or were put back."""
        return list(self._waiting)

    @property
    def uncommitted(self) -> list[M]:
        """The taken messages, in order."""
        return list(self._uncommitted)

    def add(self, messages: Sequence[M]) -> None:
        """Append pulled messages."""
        waiting = self._waiting
        assert not (waiting and messages) or (
            waiting[-1].queue_offset < messages[0].queue_offset
        ), "what is pulled comes after what is there"
        waiting.extend(messages)

    def ready_at(self) -> float | None:
        """Return the time when a message can be taken, 0 for now; None if the queue is empty."""
        return 0.0 if self._waiting else None

    def take(self, count_max: int, now: float) -> list[M]:
        """Return the next messages, up to *count_max*."""
        del now  # no message waits for a time here
        waiting = self._waiting
        taken = [waiting.popleft() for _ in range(min(count_max, len(waiting)))]
        self._uncommitted += taken
        return taken

    def commit(self, messages: Sequence[M]) -> int:
        """Remove a completed batch and all messages taken before it; return their bytes.

        Messages taken after it stay uncommitted: several batches may have been taken at a time.
        """
        end = bisect_right(self._uncommitted, messages[-1].queue_offset, key=_queue_offset)
        done = self._uncommitted[:end]
        del self._uncommitted[:end]
        return self.held.remove(done)

    def put_back(self, messages: Sequence[M]) -> None:
        """Put the last taken messages back at the front."""
        first = len(self._uncommitted) - len(messages)
        assert self._uncommitted[first:] == list(messages), "these were not taken last"
        del self._uncommitted[first:]
        self._waiting.extendleft(reversed(messages))

    def roll_back(self) -> None:
        """Put all taken messages back at the front."""
        self._waiting.extendleft(reversed(self._uncommitted))
        self._uncommitted.clear()

    def discard(self, messages: Sequence[M]) -> int:
        """Drop messages that were handled elsewhere, taken or not; return their bytes."""
        offsets = {message.queue_offset for message in messages}
        self._waiting = deque(m for m in self._waiting if m.queue_offset not in offsets)
        self._uncommitted = [m for m in self._uncommitted if m.queue_offset not in offsets]
        return self.held.remove(messages)
