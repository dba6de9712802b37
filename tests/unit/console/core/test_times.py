"""Times that a person types."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eruca.contract.errors import ValidationError
from eruca_console.core.times import typed_time


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("", None),
        ("2026-11-21T08:00", datetime(2026, 11, 21, 8, tzinfo=UTC)),
        ("2026-11-21T09:00:05+01:00", datetime(2026, 11, 21, 8, 0, 5, tzinfo=UTC)),
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
        ("0001-01-01", datetime.min.replace(tzinfo=UTC)),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, time: datetime | None) -> None:
    assert typed_time(text, "since") == time


@pytest.mark.parametrize("text", ["soon", "2026-13-01", "x" * 5_000, "0001-01-01T00:00+00:01"])
def test_another_text_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(ValidationError, match=r"query\.until: expected a time") as refused:
        typed_time(text, "until")
    assert len(str(refused.value)) < 300
