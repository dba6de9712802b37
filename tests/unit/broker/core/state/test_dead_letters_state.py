"""The redriven dead letters: the fold, its snapshots, and its limits."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from eruca_broker.core.state.dead_letters_state import RedrivenLetters
from eruca_broker.core.state.timers_events import DeadLettersRedriven

groups = st.sampled_from("gh")
events = st.lists(st.tuples(groups, st.lists(st.integers(0, 60), max_size=20), st.integers(1, 9)))


def folded(some: list[tuple[str, list[int], int]]) -> RedrivenLetters:
    letters = RedrivenLetters()
    for group, ids, at in some:
        letters.apply(DeadLettersRedriven(group, ids, at, 0))
    return letters


def everything(letters: RedrivenLetters) -> dict[tuple[str, int], int]:
    return {
        (group, number): at
        for group in "gh"
        for number in range(61)
        if (at := letters.redriven_at(group, number)) is not None
    }


@given(events)
def test_the_last_time_counts(some: list[tuple[str, list[int], int]]) -> None:
    expected = {(group, number): at for group, ids, at in some for number in ids}

    assert everything(folded(some)) == expected


@given(events, st.integers(1, 3))
def test_a_snapshot_says_the_same(some: list[tuple[str, list[int], int]], items_max: int) -> None:
    letters, loaded = folded(some), RedrivenLetters()

    for piece, weight in letters.copy().pieces(items_max):
        assert 1 <= weight <= items_max
        loaded.load(piece)

    assert everything(loaded) == everything(letters)


@given(events, st.integers(0, 61))
def test_what_retention_deleted_is_forgotten(
    some: list[tuple[str, list[int], int]], first: int
) -> None:
    letters = folded(some)
    kept = {key: at for key, at in everything(letters).items() if key[0] == "h" or key[1] >= first}

    letters.forget_before(lambda group: first if group == "g" else 0)

    assert everything(letters) == kept


def test_a_deleted_topic_takes_its_letters_with_it() -> None:
    letters = folded([("g", [1], 5), ("h", [1], 5)])

    letters.forget_topic("g")
    letters.forget_topic("%DLQ%h")

    assert everything(letters) == {("g", 1): 5}


def test_a_copy_changes_by_itself() -> None:
    letters = folded([("g", [1], 5)])
    copied = letters.copy()

    copied.apply(DeadLettersRedriven("g", [2], 6, 0))

    assert everything(letters) == {("g", 1): 5}
