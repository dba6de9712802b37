"""Times as text: every 64-bit number has one, and real ones are exact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.core.records.times import moment, ms_of, rfc3339

LAST_MS = 253_402_300_799_999  # of year 9999


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_795_248_000_123, "2026-11-21T08:00:00.123Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (LAST_MS, "9999-12-31T23:59:59.999Z"),
        (LAST_MS + 1, "9999-12-31T23:59:59.999Z"),
        (2**63 - 1, "9999-12-31T23:59:59.999Z"),
        (-(2**63), "0001-01-01T00:00:00.000Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
    ],
)
def test_a_number_is_written_as_the_nearest_moment(ms: int, text: str) -> None:
    assert rfc3339(ms) == text


@given(st.integers(-62_135_596_800_000, LAST_MS))
def test_text_and_moment_say_the_same(ms: int) -> None:
    assert datetime.fromisoformat(rfc3339(ms)) == moment(ms)
    assert ms_of(moment(ms)) == ms


def test_a_moment_elsewhere_is_the_same_moment() -> None:
    there = datetime(2026, 11, 21, 10, 0, tzinfo=timezone(timedelta(hours=2)))

    assert ms_of(there) == ms_of(datetime(2026, 11, 21, 8, 0, tzinfo=UTC)) == 1_795_248_000_000
