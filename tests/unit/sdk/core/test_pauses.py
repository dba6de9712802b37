"""Pauses after failures: they double, up to a limit, for however long it goes on."""

from __future__ import annotations

import pytest

from eruca.core.pauses import doubled


def test_each_pause_is_twice_the_one_before_up_to_a_limit() -> None:
    assert [doubled(0.5, times, 3.0) for times in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize("times", [1_023, 1_024, 1_000_000])
def test_an_outage_of_days_has_the_longest_pauses_to_its_end(times: int) -> None:
    assert doubled(0.02, times, 30.0) == 30.0
