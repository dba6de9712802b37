"""Another clock's time, worked out from what it says and when it said so."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca_txn_checker.core.other_clock import OtherClock

NOW = 1_700_000_000_000


def test_clocks_are_taken_to_agree_until_something_else_is_known() -> None:
    assert OtherClock().there(NOW) == NOW


@given(difference_ms=st.integers(-(10**9), 10**9), trip_ms=st.integers(0, 5_000))
def test_the_other_time_is_known_to_within_the_time_of_a_request(
    difference_ms: int, trip_ms: int
) -> None:
    clock = OtherClock()

    clock.note(NOW + difference_ms + trip_ms // 2, asked_ms=NOW, answered_ms=NOW + trip_ms)

    error = clock.there(NOW) - (NOW + difference_ms)
    assert abs(error) <= max(100, trip_ms)


def test_what_the_request_itself_took_is_no_difference() -> None:
    clock = OtherClock()

    clock.note(NOW + 900, asked_ms=NOW, answered_ms=NOW + 1_000)

    assert clock.difference_ms == 0


def test_a_clock_that_is_set_right_is_believed() -> None:
    clock = OtherClock()
    clock.note(NOW + 3_600_000, asked_ms=NOW, answered_ms=NOW + 2)
    assert clock.difference_ms > 3_599_000

    clock.note(NOW + 5, asked_ms=NOW + 4, answered_ms=NOW + 6)

    assert clock.difference_ms == 0


def test_an_answer_during_which_our_clock_was_set_back_tells_nothing() -> None:
    clock = OtherClock()

    clock.note(NOW, asked_ms=NOW, answered_ms=NOW - 60_000)

    assert clock.difference_ms == 0


def test_a_slow_answer_that_contradicts_nothing_changes_nothing() -> None:
    clock = OtherClock()
    clock.note(NOW - 3_000, asked_ms=NOW, answered_ms=NOW)

    clock.note(NOW + 7_000, asked_ms=NOW + 8_000, answered_ms=NOW + 12_000)

    assert clock.difference_ms == -3_000
