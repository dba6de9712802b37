"""The pace of updates: they take a bounded part of a core, and come as often as that allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_console.core.pace import PERIOD_SECONDS_MAX, SAMPLE_COUNT, SHARE_MAX, Pace

SHORTEST = 2.0


def after(cost_seconds: float, updates: int = SAMPLE_COUNT + 1) -> Pace:
    pace = Pace(SHORTEST)
    for number in range(updates):
        pace.updated(100.0 + number * cost_seconds)
    return pace


def test_before_anything_is_known_updates_come_at_once() -> None:
    assert Pace(SHORTEST).period_seconds(10_000) == SHORTEST
    assert after(1.0, SAMPLE_COUNT).period_seconds(10_000) == SHORTEST


@given(cost_seconds=st.floats(0, 0.2), pages=st.integers(1, 1_000))
def test_all_updates_together_take_no_more_than_their_share(
    cost_seconds: float, pages: int
) -> None:
    period = after(cost_seconds).period_seconds(pages)

    taken = pages * cost_seconds / period
    assert SHORTEST <= period <= PERIOD_SECONDS_MAX
    assert taken <= SHARE_MAX * 1.000001 or period == PERIOD_SECONDS_MAX
    if period > SHORTEST:
        assert taken >= SHARE_MAX * 0.999999


def test_updates_come_often_again_once_they_cost_little() -> None:
    pace = after(0.05)
    assert pace.period_seconds(100) == pytest.approx(100 * 0.05 / SHARE_MAX)
    for _ in range(SAMPLE_COUNT):
        pace.updated(100.0 + SAMPLE_COUNT * 0.05)
    assert pace.period_seconds(100) == SHORTEST
