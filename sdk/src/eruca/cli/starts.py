"""Parse start positions: ``earliest``, ``latest``, a time, or a span before now. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

_SPAN: Final = re.compile(r"(\d{1,9})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

START_HELP: Final = (
    "Where to begin: earliest, latest, a time (2026-11-01T12:00:00Z) or a span before now"
    " (90s, 15m, 2h, 3d)."
)


class QueueEnd(StrEnum):
    """An end of a queue."""

    EARLIEST = "earliest"
    LATEST = "latest"


Start = QueueEnd | datetime


def start_of(text: str, now: datetime) -> Start:
    """Return the start position that *text* means; a time without a zone is local.

    Raises:
        ValueError: The text is invalid; the error lists the valid forms.
    """
    if text in tuple(QueueEnd):
        return QueueEnd(text)
    if (ago := span_of(text)) is not None:
        try:
            return now - ago
        except OverflowError:
            raise ValueError(f"{text!r} is out of range") from None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            "expected earliest, latest, a time such as 2026-11-01T12:00:00Z, or a span such as"
            f" 15m; found {text!r}"
        ) from None


def span_of(text: str) -> timedelta | None:
    """Return the span in *text*, such as ``90s`` or ``3d``; None if it is not one."""
    match = _SPAN.fullmatch(text)
    return None if match is None else timedelta(**{_UNITS[match[2]]: int(match[1])})
