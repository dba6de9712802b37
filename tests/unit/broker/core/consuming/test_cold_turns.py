"""Turns of cold reads: every read gets one, readers share them, and the rates hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.core.consuming.cold_turns import NO_RATES, ColdRates, ColdTurns

ASKS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), max_size=30)
RATES = st.builds(ColdRates, st.sampled_from([0, 1, 10]), st.sampled_from([0, 1, 10]))


@given(ASKS, RATES)
def test_every_read_gets_its_turn_and_the_rates_hold(
    asks: list[tuple[str, int]], rates: ColdRates
) -> None:
    turns: ColdTurns[tuple[int, int]] = ColdTurns(rates)
    for number, (reader, size) in enumerate(asks):
        turns.ask(reader, (number, size), size)
    now = 0.0
    taken: list[tuple[float, str, tuple[int, int]]] = []
    while len(taken) < len(asks):
        found = turns.take(now)
        if found is None:
            due_in = turns.due_in(now)
            assert due_in is not None
            now += max(due_in, 1e-9)  # a sum may be rounded down
            continue
        taken.append((now, *found))
        turns.done(found[0])

    assert not len(turns)
    assert sorted(number for _, _, (number, _) in taken) == list(range(len(asks)))
    for reader in "abc":
        its = [(at, number, size) for at, name, (number, size) in taken if name == reader]
        assert [number for _, number, _ in its] == sorted(number for _, number, _ in its)
        if rates.of_one and its:
            assert its[-1][0] * rates.of_one >= sum(size for _, _, size in its[:-1]) - 1e-6
    if rates.of_all and taken:
        assert taken[-1][0] * rates.of_all >= sum(size for _, _, (_, size) in taken[:-1]) - 1e-6


def test_a_reader_with_many_reads_delays_another_by_one() -> None:
    turns: ColdTurns[int] = ColdTurns(NO_RATES)
    for number in range(10):
        turns.ask("greedy", number, 1)
    assert turns.take(0) == ("greedy", 0)
    turns.ask("modest", 100, 1)
    turns.done("greedy")

    assert turns.take(0) == ("modest", 100)
    assert turns.take(0) == ("greedy", 1)
    assert turns.take(0) is None  # each has one in progress
    assert turns.due_in(0) is None


def test_a_reader_that_has_used_its_rate_does_not_delay_others() -> None:
    turns: ColdTurns[int] = ColdTurns(ColdRates(of_one=10))
    turns.ask("a", 1, 100)
    turns.ask("a", 2, 1)
    assert turns.take(0) == ("a", 1)
    turns.done("a")

    assert turns.take(0) is None
    assert turns.due_in(0) == 10
    turns.ask("b", 3, 1)
    assert turns.take(0) == ("b", 3)
    assert turns.take(10) == ("a", 2)


def test_a_read_that_is_withdrawn_gets_no_turn() -> None:
    turns: ColdTurns[str] = ColdTurns(NO_RATES)
    turns.ask("a", "left", 1)
    turns.ask("a", "stays", 1)

    assert turns.withdraw("a", "left")
    assert not turns.withdraw("a", "left")
    assert not turns.withdraw("b", "stays")
    assert turns.take(0) == ("a", "stays")


def test_reads_that_are_given_up_wait_no_longer() -> None:
    turns: ColdTurns[str] = ColdTurns(ColdRates(of_all=1))
    turns.ask("a", "one", 1)
    turns.ask("b", "other", 1)

    assert turns.give_up() == ["one", "other"]
    assert not len(turns)
    assert turns.take(0) is None
