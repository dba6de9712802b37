"""Times: milliseconds in the log and in rows, aware datetimes in answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MS: Final = timedelta(milliseconds=1)
_MS_MIN: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MS
_MS_MAX: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MS


def moment(ms: int) -> datetime:
    """Return the moment *ms* after the epoch, clamped to the range of datetime."""
    return _EPOCH + min(max(ms, _MS_MIN), _MS_MAX) * _MS


def moment_or_none(ms: int | None) -> datetime | None:
    """Return the moment *ms* after the epoch; None for None."""
    return None if ms is None else moment(ms)


def ms_of(when: datetime) -> int:
    """Return an aware datetime as milliseconds since the epoch."""
    return (when - _EPOCH) // _MS
