"""Parse delivery times: at once, at a time, or after a delay. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from eruca.cli.starts import span_of


@dataclass(frozen=True, slots=True)
class Delay:
    """A delay; one of the two, or none."""

    deliver_at: datetime | None = None
    seconds: float | None = None


def delay_of(text: str) -> Delay:
    """Return the delay that *text* means; a time without a zone is local.

    Raises:
        ValueError: The text is invalid; the error lists the valid forms.
    """
    if (span := span_of(text)) is not None:
        return Delay(seconds=span.total_seconds())
    try:
        return Delay(deliver_at=datetime.fromisoformat(text).astimezone(UTC))
    except (ValueError, OverflowError):
        raise ValueError(
            "expected a span such as 90s, 15m, 2h or 3d, or a time such as"
            f" 2026-11-01T12:00:00Z; found {text!r}"
        ) from None
