"""The pace of updates: they cost a bounded amount, and come as often as that allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_console.core.pace import (
    CLUSTER_SHARE_MAX,
    PERIOD_SECONDS_MAX,
    SAMPLE_COUNT,
    SAMPLE_SECONDS_MAX,
    SHARE_MAX,
    Pace,
    Spent,
)

SHORTEST = 2.0


def after(cpu_seconds: float, asked_seconds: float = 0, updates: int = SAMPLE_COUNT + 1) -> Pace:
    pace = Pace(SHORTEST)
    for number in range(updates):
        pace.updated(Spent(100.0 + number * cpu_seconds, 7 + number * asked_seconds, 0.0))
    return pace


def test_before_anything_is_known_updates_come_at_once() -> None:
    assert Pace(SHORTEST).period_seconds(10_000) == SHORTEST
    assert after(1.0, 100, SAMPLE_COUNT).period_seconds(10_000) == SHORTEST


@given(cpu_seconds=st.floats(0, 0.2), asked_seconds=st.floats(0, 0.3), pages=st.integers(1, 1_000))
def test_all_updates_together_cost_no_more_than_their_bounds(
    cpu_seconds: float, asked_seconds: float, pages: int
) -> None:
    period = after(cpu_seconds, asked_seconds).period_seconds(pages)

    used = (
        pages * cpu_seconds / period / SHARE_MAX,
        pages * asked_seconds / period / CLUSTER_SHARE_MAX,
    )
    assert SHORTEST <= period <= PERIOD_SECONDS_MAX
    assert max(used) <= 1.000001 or period == PERIOD_SECONDS_MAX
    if period > SHORTEST:
        assert max(used) >= 0.999999


def test_the_time_without_pages_is_charged_to_no_update() -> None:
    pace = after(0.001, updates=SAMPLE_COUNT - 1)
    pace.restart()
    for number in range(SAMPLE_COUNT + 1):
        pace.updated(Spent(160.0 + number * 0.001, 7, 0.0))

    assert pace.period_seconds(3) == SHORTEST


def test_updates_come_often_again_once_they_cost_little() -> None:
    pace = after(0.05)
    assert pace.period_seconds(100) == pytest.approx(100 * 0.05 / SHARE_MAX)
    for _ in range(SAMPLE_COUNT):
        pace.updated(Spent(100.0 + SAMPLE_COUNT * 0.05, 7, 0.0))
    assert pace.period_seconds(100) == SHORTEST


def test_a_slow_pace_recovers_after_one_sample_of_time() -> None:
    pace = after(20.0)
    assert pace.period_seconds(3) == PERIOD_SECONDS_MAX
    spent = 100.0 + SAMPLE_COUNT * 20.0
    pace.updated(Spent(spent + 0.001, 7, SAMPLE_SECONDS_MAX / 2))
    assert pace.period_seconds(3) == PERIOD_SECONDS_MAX
    pace.updated(Spent(spent + 0.002, 7, SAMPLE_SECONDS_MAX))
    assert pace.period_seconds(3) == SHORTEST
