"""Start positions are parsed from a user's input."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from eruca.cli.starts import QueueEnd, Start, start_of

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", QueueEnd.EARLIEST),
        ("latest", QueueEnd.LATEST),
        ("90s", NOW - timedelta(seconds=90)),
        ("15m", NOW - timedelta(minutes=15)),
        ("2h", NOW - timedelta(hours=2)),
        ("3d", NOW - timedelta(days=3)),
        ("2026-10-31T10:00:00Z", datetime(2026, 10, 31, 10, tzinfo=UTC)),
        ("2026-10-31T10:00:00+02:00", datetime(2026, 10, 31, 8, tzinfo=UTC)),
        ("2026-10-31", datetime(2026, 10, 31).astimezone(UTC)),
    ],
)
def test_a_start_is_an_end_of_the_queue_a_time_or_so_long_ago(text: str, start: Start) -> None:
    assert start_of(text, NOW) == start


@pytest.mark.parametrize(
    "text", ["", "now", "first", "15", "15 m", "999999999d", "2026-13-01", "0001-01-01T00+14"]
)
def test_anything_else_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        start_of(text, NOW)
