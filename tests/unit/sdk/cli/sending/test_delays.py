"""Delivery times are parsed from a user's input."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eruca.cli.sending.delays import Delay, delay_of


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("0s", Delay(seconds=0)),
        ("90s", Delay(seconds=90)),
        ("15m", Delay(seconds=900)),
        ("2h", Delay(seconds=7_200)),
        ("3d", Delay(seconds=259_200)),
        ("2026-10-31T10:00:00Z", Delay(deliver_at=datetime(2026, 10, 31, 10, tzinfo=UTC))),
        ("2026-10-31T10:00:00+02:00", Delay(deliver_at=datetime(2026, 10, 31, 8, tzinfo=UTC))),
        ("2026-10-31", Delay(deliver_at=datetime(2026, 10, 31).astimezone(UTC))),
    ],
)
def test_a_delay_is_a_span_or_a_time(text: str, delay: Delay) -> None:
    assert delay_of(text) == delay


@pytest.mark.parametrize("text", ["", "soon", "15", "-5m", "1.5h", "1w", "latest", "31/10/2026"])
def test_anything_else_is_refused_and_the_error_says_what_would_do(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a span such as 90s"):
        delay_of(text)
