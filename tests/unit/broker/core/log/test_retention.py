"""Retention: age by the hour, space before age, and never the segment that is written to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.core.log.retention import (
    SEGMENTS_PER_ROUND_MAX,
    RetentionRules,
    decide,
    kept_from,
)

NOW = 1_000_000_000.0
HOUR = 3_600.0
RULES = RetentionRules()
OLD, YOUNG = NOW - 73 * HOUR, NOW - 71 * HOUR


def deletions(written_at: list[float], *, hour: int = 12, disk_used: float = 0.5) -> int:
    return decide(
        RULES, written_at=written_at, now=NOW, hour=hour, disk_used=disk_used, was_refusing=False
    ).delete_count


def test_nothing_goes_outside_the_hours_while_there_is_room() -> None:
    assert deletions([OLD, OLD, YOUNG]) == 0


def test_old_segments_go_in_the_hour_of_deletion() -> None:
    assert deletions([OLD, OLD, YOUNG], hour=4) == 2


def test_a_full_disk_is_cleaned_at_any_hour_but_still_by_age() -> None:
    assert deletions([OLD, YOUNG, OLD, YOUNG], disk_used=0.76) == 1


def test_a_fuller_disk_is_cleaned_whatever_the_age() -> None:
    assert deletions([YOUNG, YOUNG, YOUNG], disk_used=0.86) == 2


def test_one_round_deletes_a_few_segments_at_most() -> None:
    assert deletions([OLD] * 50, hour=4) == SEGMENTS_PER_ROUND_MAX


@pytest.mark.parametrize(
    ("disk_used", "was_refusing", "is_refusing"),
    [(0.89, False, False), (0.91, False, True), (0.89, True, True), (0.85, True, False)],
)
def test_writes_are_refused_above_one_limit_and_taken_again_below_another(
    disk_used: float, was_refusing: bool, is_refusing: bool
) -> None:
    decision = decide(
        RULES, written_at=[], now=NOW, hour=12, disk_used=disk_used, was_refusing=was_refusing
    )

    assert decision.is_refusing is is_refusing


@given(
    written_at=st.lists(st.sampled_from([OLD, YOUNG]), max_size=30),
    hour=st.integers(0, 23),
    disk_used=st.floats(0, 1),
)
def test_the_last_segment_always_stays(
    written_at: list[float], hour: int, disk_used: float
) -> None:
    assert deletions(written_at, hour=hour, disk_used=disk_used) <= max(len(written_at) - 1, 0)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([], None),  # no other replica
        ([1_000, 1_000], None),  # they have everything
        ([1_000, 940], 940),
        ([300, 1_000], 900),  # beyond what is kept
        ([None, 1_000], 900),  # nobody knows what it has
    ],
)
def test_the_log_is_kept_for_replicas_up_to_a_number_of_bytes(
    ends: list[int | None], expected: int | None
) -> None:
    assert kept_from(ends, log_end=1_000, keep_bytes=100) == expected


def test_only_a_disk_that_is_too_full_forces_a_deletion() -> None:
    def is_forced(disk_used: float) -> bool:
        return decide(
            RULES, written_at=[OLD, OLD], now=NOW, hour=4, disk_used=disk_used, was_refusing=False
        ).is_forced

    assert [is_forced(used) for used in (0.5, 0.76, 0.86)] == [False, False, True]
