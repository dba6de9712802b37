"""One queue of an orderly consumer: what waits, and what was taken and is not committed.

Messages are taken in order and by one handler at a time. With automatic commits what was taken is
committed when its handler succeeds. Without, it stays *uncommitted* until a handler says COMMIT,
and ROLLBACK brings all of it back. Of several batches taken at a time each is committed by itself.

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
    """The messages of one queue, handed out in order; not thread-safe.

    Args:
        held: Which counts them, and says what may be committed.
    """

    __slots__ = ("_uncommitted", "_waiting", "held")

    def __init__(self, held: ProcessQueue[M]) -> None:
        self.held = held
        self._waiting: deque[M] = deque()
        self._uncommitted: list[M] = []  # taken, in order

    @property
    def waiting(self) -> list[M]:
        """What has not been taken, or has been put back."""
        return list(self._waiting)

    @property
    def uncommitted(self) -> list[M]:
        """What has been taken, in order."""
        return list(self._uncommitted)

    def add(self, messages: Sequence[M]) -> None:
        """Take in what was pulled, after what is there."""
        self._waiting.extend(messages)

    def ready_at(self) -> float | None:
        """Return from when on there is something to take, 0 for now; None: nothing is here."""
        return 0.0 if self._waiting else None

    def take(self, count_max: int, now: float) -> list[M]:
        """Hand out the next messages, up to *count_max*."""
        del now  # nothing here waits for a time
        waiting = self._waiting
        taken = [waiting.popleft() for _ in range(min(count_max, len(waiting)))]
        self._uncommitted += taken
        return taken

    def commit(self, messages: Sequence[M]) -> int:
        """Note that a batch is done with, and everything taken before it; return its bytes.

        What was taken after it stays uncommitted: several batches may have been taken at a time.
        """
        end = bisect_right(self._uncommitted, messages[-1].queue_offset, key=_queue_offset)
        done = self._uncommitted[:end]
        del self._uncommitted[:end]
        return self.held.remove(done)

    def put_back(self, messages: Sequence[M]) -> None:
        """Put the messages taken last back in front."""
        first = len(self._uncommitted) - len(messages)
        assert self._uncommitted[first:] == list(messages), "these were not taken last"
        del self._uncommitted[first:]
        self._waiting.extendleft(reversed(messages))

    def roll_back(self) -> None:
        """Put everything taken back in front."""
        self._waiting.extendleft(reversed(self._uncommitted))
        self._uncommitted.clear()

    def discard(self, messages: Sequence[M]) -> int:
        """Drop messages that are dealt with otherwise, taken or not; return their bytes."""
        offsets = {message.queue_offset for message in messages}
        self._waiting = deque(m for m in self._waiting if m.queue_offset not in offsets)
        self._uncommitted = [m for m in self._uncommitted if m.queue_offset not in offsets]
        return self.held.remove(messages)
