"""Held pulls: the queues for which each waits, its deadline, and the arrivals that wake it.

A pull that finds nothing new is held instead of answered. It waits on all of its queues at once,
with one position for each. The first arrival that passes its filter wakes it. An arrival that does
not pass moves the position beyond it. So no entry is examined twice for one pull, and the answer
after the wait says where each queue has been read to. A pull is also woken if an arrival contains
more than may be examined at once; its answer says where it stopped.

The table decides, and contains no clock and no future. Its owner passes the time, asks for the next
deadline and keeps one timer for it. Deadlines are in one heap. A pull that was released early
leaves its entry there, and the heap is rebuilt once such entries are the majority.

Source: RocketMQ 5.3, ``PullRequestHoldService``, ``NotifyMessageArrivingListener``. Its periodic
check ignores filters and releases pulls late by up to five seconds; this one does neither.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from eruca_broker.core.consuming.message_filter import EVERYTHING, MessageFilter

Queue: TypeAlias = tuple[str, int]  # topic, queue id

_GARBAGE_MIN: Final = 64  # number of abandoned heap entries below which a rebuild does not pay


@dataclass(slots=True)
class Position:
    """The position of a held pull in one of its queues."""

    queue: Queue
    offset: int  # nothing from here on has been examined yet
    filter: MessageFilter = EVERYTHING


@dataclass(slots=True, eq=False)
class HeldPull:
    """One held request; *wake* is called at most once, when it must be answered."""

    positions: list[Position]
    deadline: float
    wake: Callable[[], None]
    is_held: bool = field(default=False, init=False)


class Examined(NamedTuple):
    """The content of a queue from a position on."""

    matches: bool  # a message there passes the filter, or not all could be examined at once
    next_offset: int  # everything before it has been examined and did not pass


Examine: TypeAlias = Callable[[Position], Examined]


def examine_once(examine: Examine) -> Examine:
    """Return an *examine* that looks once for all pulls at one position with one filter.

    It remembers its results, so use it only for the arrivals of one moment.
    """
    seen: dict[tuple[Queue, int, MessageFilter], Examined] = {}

    def examined(position: Position) -> Examined:
        key = (position.queue, position.offset, position.filter)
        if key not in seen:
            seen[key] = examine(position)
        return seen[key]

    return examined


class HeldPulls:
    """The table of held pulls; its owner checks ``is_full`` before it holds one more."""

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._by_queue: dict[Queue, dict[HeldPull, Position]] = {}
        self._deadlines: list[tuple[float, int, HeldPull]] = []
        self._sequence = 0  # breaks ties, so that two pulls are never compared
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def is_full(self) -> bool:
        """Return True if no further pull may be held."""
        return self._size >= self.size_max

    def hold(self, pull: HeldPull) -> None:
        """Start to wait. A queue occurs at most once among the positions."""
        assert not self.is_full
        assert not pull.is_held
        pull.is_held = True
        self._size += 1
        for position in pull.positions:
            waiting = self._by_queue.setdefault(position.queue, {})
            assert pull not in waiting, "a queue occurs twice, and one position would be lost"
            waiting[pull] = position
        self._sequence += 1
        heapq.heappush(self._deadlines, (pull.deadline, self._sequence, pull))

    def release(self, pull: HeldPull) -> None:
        """Stop waiting without a wake-up; harmless if the pull has already left."""
        if not pull.is_held:
            return
        pull.is_held = False
        self._size -= 1
        assert self._size >= 0
        for position in pull.positions:
            waiting = self._by_queue[position.queue]
            del waiting[pull]
            if not waiting:
                del self._by_queue[position.queue]
        if len(self._deadlines) > 2 * self._size + _GARBAGE_MIN:
            self._deadlines = [entry for entry in self._deadlines if entry[2].is_held]
            heapq.heapify(self._deadlines)

    def arrived(self, queues: Iterable[Queue], examine: Examine) -> int:
        """Wake the pulls to which new messages in *queues* matter; return how many were woken.

        *examine* is called only for positions with a filter, once for each position and call.
        """
        woken = 0
        for queue in queues:
            waiting = self._by_queue.get(queue)
            if waiting is None:
                continue
            concerned = []
            for pull, position in waiting.items():
                if not position.filter.passes_all:
                    matches, position.offset = examine(position)
                    if not matches:
                        continue
                concerned.append(pull)
            woken += self._wake_all(concerned)
        return woken

    def gone(self, queues: Iterable[Queue]) -> int:
        """Wake all pulls that wait for *queues*, which no longer exist; return their number."""
        return self._wake_all({pull for queue in queues for pull in self._by_queue.get(queue, ())})

    def next_deadline(self) -> float | None:
        """Return the time at which the next pull expires, or None while none is held."""
        while self._deadlines and not self._deadlines[0][2].is_held:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now: float) -> int:
        """Wake every pull whose deadline has come; return their number."""
        woken = 0
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            woken += self._wake_all([self._deadlines[0][2]])
        return woken

    def wake_all(self) -> int:
        """Wake every pull, as at shutdown; return their number."""
        woken = self._wake_all([pull for _, _, pull in self._deadlines if pull.is_held])
        assert not self._size, "one that is held has no deadline"
        return woken

    def queues_of(self, topic: str) -> list[Queue]:
        """Return the queues of *topic* for which a pull waits."""
        return [queue for queue in self._by_queue if queue[0] == topic]

    def _wake_all(self, pulls: Iterable[HeldPull]) -> int:
        """Wake *pulls*, collected before: each leaves the table, which must not be iterated over.

        Return how many were still held: a pull that is woken may release another one.
        """
        woken = 0
        for pull in pulls:
            if pull.is_held:
                self.release(pull)
                pull.wake()
                woken += 1
        return woken
