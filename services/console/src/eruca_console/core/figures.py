"""Figures as people read them. Unknown is ``?``, never 0 and never nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

UNKNOWN: Final = "?"
_THIN_SPACE: Final = "\u202f"  # between thousands: read alike in English and Chinese
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400


def count(value: int | None) -> str:
    """Return a whole number with its thousands apart."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", _THIN_SPACE)


def size(value: int | None) -> str:
    """Return a number of bytes with the unit that leaves at most four digits."""
    if value is None:
        return UNKNOWN
    amount = float(value)
    for unit in _UNITS:
        if abs(amount) < 1024 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def share(value: float | None) -> str:
    """Return a ratio from 0 to 1 as a percentage."""
    return UNKNOWN if value is None else f"{value * 100:.0f} %"


def moment(value: datetime | None) -> str:
    """Return a time to the second, in UTC: ``2026-11-21 08:00:00``."""
    return UNKNOWN if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def exact(value: datetime | None) -> str:
    """Return a time to the millisecond, as the API writes it."""
    if value is None:
        return UNKNOWN
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units: ``3 h 20 min``."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return _two(whole, _MINUTE, "min", 1, "s")
    if whole < _DAY:
        return _two(whole, _HOUR, "h", _MINUTE, "min")
    return _two(whole, _DAY, "d", _HOUR, "h")


def age(value: datetime | None, now: datetime) -> str:
    """Return how long ago a time was."""
    return UNKNOWN if value is None else duration((now - value).total_seconds())


def _two(whole: int, large: int, large_name: str, small: int, small_name: str) -> str:
    rest = whole % large // small
    return f"{whole // large} {large_name}" + (f" {rest} {small_name}" if rest else "")
