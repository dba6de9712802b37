"""Binary search: the first offset where the answer turns, and few questions asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.core.offset_search import partition_point


@given(st.integers(0, 100), st.integers(0, 100), st.integers(-10, 220))
def test_the_first_offset_that_does_not_hold_is_found(low: int, size: int, turn: int) -> None:
    found = partition_point(low, low + size, lambda offset: offset < turn)

    assert found == min(max(turn, low), low + size)


def test_a_million_offsets_take_twenty_questions() -> None:
    asked = []

    def holds(offset: int) -> bool:
        asked.append(offset)
        return offset < 777_777

    assert partition_point(0, 1_000_000, holds) == 777_777
    assert len(asked) <= 20


def test_nothing_is_asked_of_an_empty_range() -> None:
    assert partition_point(5, 5, lambda _: 1 / 0 > 0) == 5
