"""Times as text: RFC 3339 in UTC, with milliseconds.

A record's times may be any 64-bit number that its producer wrote. RFC 3339 cannot express times
outside the years 1 to 9999; they are shown as the nearest time that it can.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MS: Final = timedelta(milliseconds=1)
_MS_MIN: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MS
TIMESTAMP_MAX: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MS  # ms; end of year 9999


def rfc3339(ms: int) -> str:
    """Return the time *ms* milliseconds after the epoch, as in ``2026-11-21T08:00:00.123Z``."""
    seconds, rest = divmod(min(max(ms, _MS_MIN), TIMESTAMP_MAX), 1000)
    return f"{_whole_second(seconds)}.{rest:03d}Z"


def moment(ms: int) -> datetime:
    """Return the time *ms* milliseconds after the epoch as an aware datetime."""
    return _EPOCH + min(max(ms, _MS_MIN), TIMESTAMP_MAX) * _MS


def ms_of(when: datetime) -> int:
    """Return an aware datetime as milliseconds since the epoch."""
    return (when - _EPOCH) // _MS


def ms_not_before(when: datetime) -> int:
    """Return the first millisecond since the epoch that is not before an aware datetime."""
    return -((_EPOCH - when) // _MS)


@lru_cache(maxsize=1024)
def _whole_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").zfill(19)
