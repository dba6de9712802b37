"""Pending timers in the order in which they become due; compact and exact.

A timer is a pair: the time at which it is due, and its id, the log offset of the waiting message.
States::

            add                take_due, take              finish
    (none) ─────► pending ───────────────────► held ───────────────► (none)
                     ▲                          │
                     └──────────────────────────┘ give_back

A timer is *held* while an event that will end it is on its way into the log. Nothing else can take
it meanwhile, so a timer is fired or recalled, never both. ``give_back`` is for events that did not
reach the log.

Memory: 16 bytes for each timer, in buckets by minute, and by second for the current minute. Timers
of the current second take about 120 bytes. Even with a million timers, none is sorted or moved
before its minute has come.

The clock is an argument and may step. Taking compares with it and does nothing else. A step back
delays the remaining timers, a step forward makes them due, and neither takes a timer twice.

Source: the design of RocketMQ 5.3's ``TimerWheel``, in memory and without rounded times.
"""

from __future__ import annotations

import heapq
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from eruca_broker.core.state.timers_events import TimerRows

NO_TIMERS: Final[TimerRows] = np.zeros((0, 2), np.int64)
_SECOND: Final = 1_000  # ms
_MINUTE: Final = 60_000
_SORTED_COUNT: Final = 512  # timers of a bucket that a page sorts at first
_NEVER: Final = -(2**63)


class Timer(NamedTuple):
    """A timer; timers are ordered by the time at which they are due, then by their log offset."""

    due_ms: int  # since the epoch
    id: int  # log offset


class PendingTimers:
    """All timers of a broker that have not ended."""

    def __init__(self) -> None:
        self._minutes = _Buckets(_MINUTE)
        self._seconds = _Buckets(_SECOND)
        self._front: list[tuple[int, int]] = []  # a heap: of the seconds up to _front_second
        self._near_minute = _NEVER  # later minutes are in _minutes
        self._front_second = _NEVER  # later seconds are in _seconds, if they are near
        self._held: dict[int, int] = {}  # id → due time

    def __len__(self) -> int:
        return len(self._front) + self._seconds.count + self._minutes.count

    @property
    def held_count(self) -> int:
        """Return the number of timers that are about to end."""
        return len(self._held)

    def add(self, due_ms: int, timer_id: int) -> None:
        """Set a timer."""
        if due_ms // _MINUTE > self._near_minute:
            self._minutes.add(due_ms, timer_id)
        elif due_ms // _SECOND > self._front_second:
            self._seconds.add(due_ms, timer_id)
        else:
            heapq.heappush(self._front, (due_ms, timer_id))

    def add_rows(self, rows: TimerRows) -> None:
        """Set many timers."""
        is_far = rows[:, 0] // _MINUTE > self._near_minute
        self._minutes.add_rows(rows[is_far])
        for due_ms, timer_id in rows[~is_far].tolist():
            self.add(due_ms, timer_id)

    def next_due_ms(self) -> int | None:
        """Return when to look again: no later than the first is due, and not much earlier."""
        if self._front:
            return self._front[0][0]
        for buckets in (self._seconds, self._minutes):
            if (first := buckets.first()) is not None:
                return first * buckets.width
        return None

    def take_due(self, now_ms: int, count_max: int) -> list[Timer]:
        """Hold up to *count_max* timers that are due, the earliest first, and return them."""
        taken: list[Timer] = []
        while len(taken) < count_max and self._advance(now_ms):
            due_ms, timer_id = heapq.heappop(self._front)
            assert timer_id not in self._held, "a timer would be fired and recalled"
            assert not taken or taken[-1].due_ms <= due_ms, "an earlier one was left behind"
            self._held[timer_id] = due_ms
            taken.append(Timer(due_ms, timer_id))
        return taken

    def take(self, timers: Iterable[Timer]) -> list[Timer]:
        """Hold those of *timers* that are pending, and return them."""
        near: set[tuple[int, int]] = set()
        seconds, minutes = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for due_ms, timer_id in timers:
            if due_ms // _MINUTE > self._near_minute:
                minutes[due_ms // _MINUTE].append(timer_id)
            elif due_ms // _SECOND > self._front_second:
                seconds[due_ms // _SECOND].append(timer_id)
            else:
                near.add((due_ms, timer_id))
        taken = [Timer(*timer) for timer in near.intersection(self._front)] if near else []
        if taken:
            self._front = [timer for timer in self._front if timer not in near]
            heapq.heapify(self._front)
        for buckets, wanted in ((self._seconds, seconds), (self._minutes, minutes)):
            for number, ids in wanted.items():
                taken += buckets.take(number, ids)
        for timer in taken:
            assert timer.id not in self._held, "a timer would be fired and recalled"
            self._held[timer.id] = timer.due_ms
        return sorted(taken)

    def give_back(self, timers: Iterable[Timer]) -> None:
        """Make held timers pending again."""
        for timer in timers:
            self.add(self._held.pop(timer.id), timer.id)

    def finish(self, ids: Iterable[int]) -> None:
        """Forget held timers: the event that ends them is in the log."""
        for timer_id in ids:
            self._held.pop(timer_id, None)

    def is_held(self, timer_id: int) -> bool:
        """Tell whether a timer is about to end."""
        return timer_id in self._held

    def is_pending(self, timer: Timer) -> bool:
        """Tell whether a timer is pending; one that is about to end is not."""
        if timer.due_ms // _MINUTE > self._near_minute:
            return self._minutes.holds(timer)
        if timer.due_ms // _SECOND > self._front_second:
            return self._seconds.holds(timer)
        return timer in self._front

    def following(self, after: Timer | None) -> Iterator[Timer]:
        """Yield the pending timers behind *after* in the order in which they become due.

        The cost of a page hardly depends on the number of timers that are due at the same time. Do
        not set or take timers while reading it.
        """
        front = [timer for timer in self._front if after is None or timer > after]
        heapq.heapify(front)
        while front:
            yield Timer(*heapq.heappop(front))
        yield from self._seconds.following(after)
        yield from self._minutes.following(after)

    def rows(self) -> TimerRows:
        """Return all timers, held ones included, in no order."""
        held = [(due_ms, timer_id) for timer_id, due_ms in self._held.items()]
        near = np.array([*self._front, *held], np.int64).reshape(-1, 2)
        return np.concatenate([near, self._seconds.rows(), self._minutes.rows()])

    def before(self, log_offset: int) -> TimerRows:
        """Return the pending timers whose messages are before *log_offset*, in log order."""
        near = np.array(self._front, np.int64).reshape(-1, 2)
        parts = [near, self._seconds.rows(), self._minutes.rows()]
        rows: TimerRows = np.concatenate([part[part[:, 1] < log_offset] for part in parts])
        return rows[np.argsort(rows[:, 1])]

    def oldest_id(self) -> int | None:
        """Return the smallest id, held timers included; None if there is none."""
        rows = self.rows()
        return int(rows[:, 1].min()) if len(rows) else None

    def _advance(self, now_ms: int) -> bool:
        """Bring the next due timers to the front; tell whether any timer is due."""
        while not self._front:
            second, minute = self._seconds.first(), self._minutes.first()
            if second is not None:
                assert second > self._front_second, "it belongs into the front"
                if second > now_ms // _SECOND:
                    return False
                self._front = self._seconds.pop(second)
                self._front_second = second
            elif minute is not None and minute <= now_ms // _MINUTE:
                assert minute > self._near_minute, "its seconds may be over"
                self._near_minute = minute
                self._front_second = max(self._front_second, minute * _MINUTE // _SECOND - 1)
                self._seconds.add_rows(self._minutes.pop_rows(minute))
            else:
                return False
        return self._front[0][0] <= now_ms


class _Buckets:
    """Timers by the second or the minute in which they are due."""

    def __init__(self, width: int) -> None:
        self.width = width  # ms
        self.count = 0  # of timers, in all buckets
        self._arrays: dict[int, array[int]] = {}
        self._order: list[int] = []  # a heap of the buckets' numbers; some may be gone

    def add(self, due_ms: int, timer_id: int) -> None:
        self._bucket(due_ms // self.width).extend((due_ms, timer_id))
        self.count += 1

    def add_rows(self, rows: TimerRows) -> None:
        if not len(rows):
            return
        numbers = rows[:, 0] // self.width
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        for number, some in zip(found.tolist(), np.split(rows[order], starts[1:]), strict=True):
            self._bucket(number).frombytes(np.ascontiguousarray(some).tobytes())
        self.count += len(rows)

    def first(self) -> int | None:
        """Return the number of the earliest bucket."""
        order = self._order
        while order and order[0] not in self._arrays:
            heapq.heappop(order)
        return order[0] if order else None

    def pop(self, number: int) -> list[tuple[int, int]]:
        """Remove a bucket and return its timers in order."""
        flat = self._arrays.pop(number)
        self.count -= len(flat) // 2
        return sorted(zip(flat[0::2], flat[1::2], strict=True))

    def pop_rows(self, number: int) -> TimerRows:
        """Remove a bucket and return its timers in no order."""
        rows = _view(self._arrays.pop(number))
        self.count -= len(rows)
        return rows

    def take(self, number: int, ids: list[int]) -> list[Timer]:
        """Remove the timers among *ids* that are in a bucket, and return them."""
        bucket = self._arrays.get(number)
        if bucket is None:
            return []
        rows = _view(bucket)
        is_taken = np.isin(rows[:, 1], ids)
        taken = [Timer(*row) for row in rows[is_taken].tolist()]
        self.count -= len(taken)
        assert self.count >= 0
        if len(taken) == len(rows):
            del self._arrays[number]
        elif taken:
            self._arrays[number] = array("q", rows[~is_taken].tobytes())
        return taken

    def holds(self, timer: Timer) -> bool:
        bucket = self._arrays.get(timer.due_ms // self.width)
        return bucket is not None and bool((_view(bucket)[:, 1] == timer.id).any())

    def following(self, after: Timer | None) -> Iterator[Timer]:
        first = _NEVER if after is None else after.due_ms // self.width
        numbers = [number for number in self._arrays if number >= first]
        heapq.heapify(numbers)
        while numbers:
            yield from _in_order(_behind(_view(self._arrays[heapq.heappop(numbers)]), after))

    def rows(self) -> TimerRows:
        """Return all timers in no order; joined at once, because buckets are many and small."""
        return np.frombuffer(b"".join(self._arrays.values()), np.int64).reshape(-1, 2)

    def _bucket(self, number: int) -> array[int]:
        bucket = self._arrays.get(number)
        if bucket is None:
            bucket = self._arrays[number] = array("q")
            heapq.heappush(self._order, number)
        return bucket


def _behind(rows: TimerRows, after: Timer | None) -> TimerRows:
    """Return a copy of the timers behind *after*."""
    if after is None:
        return rows.copy()
    due, ids = rows[:, 0], rows[:, 1]
    behind: TimerRows = rows[(due > after.due_ms) | ((due == after.due_ms) & (ids > after.id))]
    return behind


def _in_order(rows: TimerRows) -> Iterator[Timer]:
    """Yield timers in order; only a few are sorted until more are requested."""
    count = _SORTED_COUNT
    while len(rows) > count:
        timers = sorted(Timer(*row) for row in _earliest(rows, count).tolist())
        yield from timers
        rows = _behind(rows, timers[-1])
        count *= 4
    yield from sorted(Timer(*row) for row in rows.tolist())


def _earliest(rows: TimerRows, count: int) -> TimerRows:
    """Return the *count* timers that are due first, in no order; at the same time, the oldest."""
    due = rows[:, 0]
    last = np.partition(due, count - 1)[count - 1]
    earlier, tied = rows[due < last], rows[due == last]
    missing = count - len(earlier)
    last_id = np.partition(tied[:, 1], missing - 1)[missing - 1]
    return np.concatenate([earlier, tied[tied[:, 1] <= last_id]])


def _view(bucket: array[int]) -> TimerRows:
    # A view: while it lives, the array cannot grow.
    return np.frombuffer(bucket, np.int64).reshape(-1, 2)
