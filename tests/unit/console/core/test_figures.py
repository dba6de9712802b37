"""Figures as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from eruca_console.core import figures

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "show",
    [figures.count, figures.size, figures.share, figures.moment, figures.exact, figures.duration],
)
def test_unknown_is_a_question_mark_and_never_zero(show: object) -> None:
    assert show(None) == "?"  # type: ignore[operator]
    assert figures.age(None, NOW) == "?"


def test_thousands_stand_apart() -> None:
    assert figures.count(0) == "0"
    assert figures.count(1_234_567) == "1\u202f234\u202f567"


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (150 * 1024, "150 KiB"),
        (5 * 1024**3, "5.0 GiB"),
        (3 * 1024**6, "3072 PiB"),
    ],
)
def test_sizes_have_the_unit_that_leaves_few_digits(size: int, shown: str) -> None:
    assert figures.size(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-3, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (12_000, "3 h 20 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, shown: str) -> None:
    assert figures.duration(seconds) == shown


def test_times_are_shown_in_utc() -> None:
    there = datetime(2026, 11, 21, 9, 0, tzinfo=timezone(timedelta(hours=1)))

    assert figures.moment(there) == "2026-11-21 08:00:00"
    assert figures.exact(there) == "2026-11-21T08:00:00.000Z"
    assert figures.age(there, NOW + timedelta(seconds=7)) == "7 s"
