"""The round-robin counter: counts up before use, never negative."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca.core.routing.counter import Counter


def test_it_counts_up_before_it_is_used() -> None:
    counter = Counter(7)

    assert [counter.advance(), counter.advance()] == [8, 9]


def test_it_starts_before_one_unless_told_otherwise() -> None:
    assert Counter().advance() == 1


def test_it_wraps_to_zero_and_not_below() -> None:
    counter = Counter(2**31 - 2)

    assert [counter.advance(), counter.advance()] == [2**31 - 1, 0]


@given(st.integers(-(2**40), 2**40))
def test_any_start_gives_what_a_masked_32_bit_number_gives(start: int) -> None:
    assert Counter(start).advance() == ((start + 1) & 0xFFFF_FFFF) & 0x7FFF_FFFF
