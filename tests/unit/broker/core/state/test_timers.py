"""Pending timers beside a model: a plain dictionary of what is pending and what is held."""

from __future__ import annotations

from itertools import islice
from unittest.mock import Mock

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eruca_broker.core.state import timers as core_timers
from eruca_broker.core.state.timers import PendingTimers, Timer

START = 1_700_000_000_000

# Near and far, on both sides of seconds' and minutes' borders, and long past.
delays = st.one_of(
    st.integers(-3_000, 3_000),
    st.integers(-70_000, 200_000),
    st.sampled_from([-86_400_000, 0, 999, 1_000, 59_999, 60_000, 3_456_000_000]),
)


class TimersMachine(RuleBasedStateMachine):
    """Every interleaving of setting, taking, ending and giving back, while the clock steps."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = PendingTimers()
        self.now = START
        self.last_id = 0
        self.pending: dict[int, int] = {}
        self.held: dict[int, int] = {}
        self.ended: set[int] = set()

    def next_id(self) -> int:
        self.last_id += 100
        return self.last_id

    @rule(delay=delays)
    def set_one(self, delay: int) -> None:
        timer_id = self.next_id()
        self.timers.add(self.now + delay, timer_id)
        self.pending[timer_id] = self.now + delay

    @rule(some=st.lists(delays, min_size=1, max_size=8))
    def set_many(self, some: list[int]) -> None:
        rows = [(self.now + delay, self.next_id()) for delay in some]
        self.timers.add_rows(np.array(rows, np.int64))
        self.pending |= {timer_id: due_ms for due_ms, timer_id in rows}

    @rule(step=st.one_of(st.integers(0, 5_000), st.integers(-100_000, 200_000)))
    def let_the_clock_step(self, step: int) -> None:
        self.now += step

    @rule(count=st.integers(1, 5))
    def take_what_is_due(self, count: int) -> None:
        taken = self.timers.take_due(self.now, count)

        due = sorted((due_ms, i) for i, due_ms in self.pending.items() if due_ms <= self.now)
        assert taken == due[:count]
        self.hold(taken)

    @precondition(lambda self: self.last_id)
    @rule(data=st.data())
    def take_some(self, data: st.DataObject) -> None:
        known = self.pending | self.held | dict.fromkeys(self.ended, START)
        wanted = data.draw(st.sets(st.sampled_from(sorted(known)), max_size=6))
        taken = self.timers.take(Timer(known[timer_id], timer_id) for timer_id in wanted)

        assert {timer.id for timer in taken} == wanted & self.pending.keys()
        self.hold(taken)

    def hold(self, taken: list[Timer]) -> None:
        for timer in taken:
            self.held[timer.id] = self.pending.pop(timer.id)
            assert self.held[timer.id] == timer.due_ms

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        ids = data.draw(st.sets(st.sampled_from(sorted(self.held))))
        self.timers.finish(ids)
        for timer_id in ids:
            del self.held[timer_id]
        self.ended |= ids

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        ids = data.draw(st.sets(st.sampled_from(sorted(self.held))))
        self.timers.give_back([Timer(self.held[timer_id], timer_id) for timer_id in ids])
        for timer_id in ids:
            self.pending[timer_id] = self.held.pop(timer_id)

    @invariant()
    def it_knows_what_the_model_knows(self) -> None:
        expected = sorted(Timer(due_ms, timer_id) for timer_id, due_ms in self.pending.items())
        everything = sorted(
            [due_ms, timer_id] for timer_id, due_ms in (self.pending | self.held).items()
        )
        assert len(self.timers) == len(expected)
        assert self.timers.held_count == len(self.held)
        assert list(self.timers.following(None)) == expected
        assert sorted(self.timers.rows().tolist()) == everything
        assert self.timers.oldest_id() == min(self.pending | self.held, default=None)
        for timer in expected[:: max(len(expected) // 3, 1)]:
            assert self.timers.is_pending(timer)
            behind = [other for other in expected if other > timer]
            assert list(self.timers.following(timer)) == behind
            by_id = sorted(expected, key=lambda other: other.id)
            before = [list(t) for t in by_id if t.id < timer.id]
            assert self.timers.before(timer.id).tolist() == before
        for timer_id, due_ms in self.held.items():
            assert self.timers.is_held(timer_id)
            assert not self.timers.is_pending(Timer(due_ms, timer_id))

    @invariant()
    def it_is_looked_at_in_time_and_only_if_due(self) -> None:
        first = min(self.pending.values(), default=None)
        next_ms = self.timers.next_due_ms()
        assert (next_ms is None) == (first is None)
        if first is not None and next_ms is not None:
            assert first - 60_000 < next_ms <= first


TestTimersMachine = TimersMachine.TestCase
TestTimersMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(dues=st.lists(st.integers(START - 200_000, START + 200_000), min_size=1, max_size=80))
def test_timers_come_due_in_order_wherever_the_clock_stops(dues: list[int]) -> None:
    timers = PendingTimers()
    for timer_id, due_ms in enumerate(dues):
        timers.add(due_ms, timer_id)

    taken, now = list[Timer](), START - 200_000
    while (next_ms := timers.next_due_ms()) is not None:
        now = max(now, next_ms)
        some = timers.take_due(now, 7)
        assert all(timer.due_ms <= now for timer in some)
        # Having looked and found nothing, it must not ask to look again at once.
        assert some or (timers.next_due_ms() or now + 1) > now
        taken += some

    assert taken == sorted((due_ms, timer_id) for timer_id, due_ms in enumerate(dues))


@given(
    dues=st.lists(st.integers(START, START + 5) | st.integers(START, START + 150_000), max_size=60),
    start=st.integers(-1, 59),
)
def test_a_page_of_timers_begins_anywhere_and_is_in_order(dues: list[int], start: int) -> None:
    rows = [(due_ms, 7 * number) for number, due_ms in enumerate(dues)]
    timers = PendingTimers()
    timers.add_rows(np.array(rows, np.int64).reshape(-1, 2))
    expected = sorted(Timer(*row) for row in rows)
    after = expected[start] if 0 <= start < len(expected) else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core_timers, "_SORTED_COUNT", 2)
        behind = list(timers.following(after))

    assert behind == [timer for timer in expected if after is None or timer > after]


def test_a_page_of_timers_that_are_due_at_once_sorts_few_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = PendingTimers()
    timers.add_rows(np.array([(START, 100_000 - n) for n in range(100_000)], np.int64))
    earliest = Mock(wraps=core_timers._earliest)
    monkeypatch.setattr(core_timers, "_earliest", earliest)

    page = list(islice(timers.following(Timer(START, 50_000)), 100))

    assert page == [Timer(START, 50_001 + n) for n in range(100)]
    assert [len(earliest.call_args.args[0]), earliest.call_args.args[1]] == [50_000, 512]
    assert earliest.call_count == 1


def test_a_clock_set_back_delays_and_takes_nothing_twice() -> None:
    timers = PendingTimers()
    for timer_id in range(3):
        timers.add(START + timer_id * 1_000, timer_id)
    assert [timer.id for timer in timers.take_due(START + 1_000, 10)] == [0, 1]

    assert timers.take_due(START - 3_600_000, 10) == []
    assert [timer.id for timer in timers.take_due(START + 2_000, 10)] == [2]
    assert timers.take_due(START + 10_000, 10) == []


def test_nobody_takes_what_somebody_holds() -> None:
    timers = PendingTimers()
    timers.add(START, 7)
    [held] = timers.take_due(START, 1)

    assert timers.take([held]) == []
    assert timers.take_due(START, 1) == []
    with pytest.raises(KeyError):
        timers.give_back([Timer(START, 8)])


def test_a_million_take_sixteen_bytes_each() -> None:
    timers = PendingTimers()
    ids = np.arange(1_000_000, dtype=np.int64)
    timers.add_rows(np.stack([START + ids * 3_456, ids], axis=1))

    buckets = timers._minutes._arrays.values()
    assert len(timers) == 1_000_000
    assert sum(len(bucket) * bucket.itemsize for bucket in buckets) == 16_000_000
    assert len(buckets) < 60_000
