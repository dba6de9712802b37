"""Held pulls: woken once, by what concerns them, at the latest when their time is up."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eruca_broker.core.consuming.held_pulls import (
    Examined,
    HeldPull,
    HeldPulls,
    Position,
    Queue,
    examine_once,
)
from eruca_broker.core.consuming.message_filter import EVERYTHING, MessageFilter, parse_filter

A: Queue = ("orders", 0)
B: Queue = ("orders", 1)
RED = parse_filter("red")


def never_examined(position: Position) -> Examined:
    raise AssertionError(f"{position} has no filter")


class Woken:
    """Counts how often a pull was woken."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def held(
    table: HeldPulls,
    *queues: Queue,
    deadline: float = 10.0,
    filter: MessageFilter = EVERYTHING,
) -> tuple[HeldPull, Woken]:
    woken = Woken()
    pull = HeldPull([Position(queue, 5, filter) for queue in queues], deadline, woken)
    table.hold(pull)
    return pull, woken


def test_an_arrival_wakes_all_who_wait_for_its_queue_and_nobody_else() -> None:
    table = HeldPulls(10)
    (_, first), (_, second), (_, other) = held(table, A), held(table, A), held(table, B)

    assert table.arrived([A], never_examined) == 2

    assert (first.times, second.times, other.times) == (1, 1, 0)
    assert len(table) == 1


def test_a_pull_of_many_queues_is_woken_once_by_whichever_comes_first() -> None:
    table = HeldPulls(10)
    _, woken = held(table, A, B)

    table.arrived([B, A], never_examined)
    table.arrived([A], never_examined)

    assert woken.times == 1
    assert len(table) == 0


def test_an_arrival_that_does_not_match_keeps_holding_from_beyond_it() -> None:
    table = HeldPulls(10)
    pull, woken = held(table, A, filter=RED)
    asked: list[int] = []

    def examine(position: Position) -> Examined:
        asked.append(position.offset)
        return Examined(matches=False, next_offset=9)

    assert table.arrived([A], examine) == 0
    assert table.arrived([A], examine) == 0

    assert asked == [5, 9]
    assert (woken.times, pull.positions[0].offset, pull.is_held) == (0, 9, True)


def test_an_arrival_that_matches_wakes() -> None:
    table = HeldPulls(10)
    pull, woken = held(table, A, filter=RED)

    assert table.arrived([A], lambda _: Examined(matches=True, next_offset=6)) == 1

    assert woken.times == 1
    assert pull.positions[0].offset == 6  # where the answer begins to read


def test_who_waits_at_one_place_with_one_filter_is_examined_for_once() -> None:
    table = HeldPulls(10)
    asked: list[Position] = []
    for wanted in (RED, parse_filter("red"), parse_filter("a = 1", "sql92"), EVERYTHING):
        held(table, A, filter=wanted)

    def examine(position: Position) -> Examined:
        asked.append(position)
        return Examined(matches=position.filter == RED, next_offset=9)

    assert table.arrived([A], examine_once(examine)) == 3

    assert [position.filter for position in asked] == [RED, parse_filter("a = 1", "sql92")]


def test_a_pull_expires_at_its_deadline_and_not_before() -> None:
    table = HeldPulls(10)
    (_, early), (_, late) = held(table, A, deadline=3.0), held(table, A, deadline=7.0)

    assert table.next_deadline() == 3.0
    assert table.expire(2.999) == 0
    assert table.expire(3.0) == 1

    assert (early.times, late.times) == (1, 0)
    assert table.next_deadline() == 7.0


def test_a_released_pull_is_never_woken_and_leaves_its_place_to_another() -> None:
    table = HeldPulls(1)
    pull, woken = held(table, A)
    assert table.is_full

    table.release(pull)
    table.release(pull)

    assert not table.is_full
    assert table.next_deadline() is None
    assert table.arrived([A], never_examined) == table.expire(99.0) == table.wake_all() == 0
    assert woken.times == 0


def test_no_more_are_held_than_the_limit_says() -> None:
    table = HeldPulls(1)
    held(table, A)

    with pytest.raises(AssertionError):
        held(table, B)


def test_queues_that_are_gone_wake_who_waited_for_them_once() -> None:
    table = HeldPulls(10)
    (_, both), (_, other) = held(table, A, B), held(table, ("else", 0))

    assert sorted(table.queues_of("orders")) == [A, B]
    assert table.gone(table.queues_of("orders")) == 1

    assert (both.times, other.times) == (1, 0)


def test_a_shutdown_wakes_everybody() -> None:
    table = HeldPulls(10)
    woken = [held(table, A)[1], held(table, A, B)[1]]

    assert table.wake_all() == 2

    assert [each.times for each in woken] == [1, 1]
    assert len(table) == 0


def test_early_releases_leave_no_memory_behind() -> None:
    table = HeldPulls(10)
    keeper, _ = held(table, A, deadline=1e9)

    for _ in range(10_000):
        pull, _ = held(table, B, deadline=1e6)
        table.release(pull)

    assert len(table._deadlines) < 200
    assert table.next_deadline() == keeper.deadline
    assert table.queues_of("orders") == [A]


class HoldingMachine(RuleBasedStateMachine):
    """Any order of calls, beside a model: a dictionary of who is held."""

    def __init__(self) -> None:
        super().__init__()
        self.table = HeldPulls(20)
        self.model: dict[HeldPull, Woken] = {}
        self.left: list[tuple[Woken, int]] = []
        self.now = 0.0

    @precondition(lambda self: len(self.model) < 20)
    @rule(
        queue_ids=st.sets(st.integers(0, 3), min_size=1),
        wait=st.integers(1, 20),
        filtered=st.booleans(),
    )
    def hold(self, queue_ids: set[int], wait: int, filtered: bool) -> None:
        pull, woken = held(
            self.table,
            *[("t", queue_id) for queue_id in queue_ids],
            deadline=self.now + wait,
            filter=RED if filtered else EVERYTHING,
        )
        self.model[pull] = woken

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        pull = data.draw(st.sampled_from(list(self.model)))
        self.table.release(pull)
        self._leave([pull], times=0)

    @rule(queue_id=st.integers(0, 3), matches=st.booleans())
    def arrive(self, queue_id: int, matches: bool) -> None:
        expected = [
            pull
            for pull in self.model
            for position in pull.positions
            if position.queue == ("t", queue_id) and (matches or position.filter.passes_all)
        ]
        count = self.table.arrived([("t", queue_id)], lambda _: Examined(matches, 7))
        assert count == len(expected)
        self._leave(expected, times=1)

    @rule(seconds=st.integers(0, 8))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        expected = [pull for pull in self.model if pull.deadline <= self.now]
        assert self.table.expire(self.now) == len(expected)
        self._leave(expected, times=1)

    def _leave(self, pulls: list[HeldPull], *, times: int) -> None:
        self.left += [(self.model.pop(pull), times) for pull in pulls]

    @invariant()
    def holds_exactly_the_others(self) -> None:
        assert len(self.table) == len(self.model)
        assert all(pull.is_held for pull in self.model)
        assert all(woken.times == 0 for woken in self.model.values())
        assert all(woken.times == times for woken, times in self.left)
        deadlines = [pull.deadline for pull in self.model]
        assert self.table.next_deadline() == min(deadlines, default=None)


TestHoldingMachine = HoldingMachine.TestCase
TestHoldingMachine.settings = settings(max_examples=60, deadline=None)
