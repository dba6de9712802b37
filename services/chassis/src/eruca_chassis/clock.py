"""Time as a parameter: code that reads a clock takes one, so that a test can set it.

Three readings, never mixed: ``now_ms`` is wall-clock time for storing and showing, and may jump;
``monotonic`` only grows, and is for waits, deadlines and expiry; ``boottime`` also grows while the
machine is suspended, and is for promises to other machines.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

# Elsewhere than on Linux the monotonic clock counts suspensions, or nothing does.
_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """A source of time for a service."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since 1970 (UTC)."""
        ...

    def monotonic(self) -> float:
        """Return monotonic time in seconds, from an unspecified start."""
        ...

    def boottime(self) -> float:
        """Return the same, but count the time in which the machine was suspended."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since 1970 (UTC)."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return monotonic time in seconds, from an unspecified start."""
        return time.monotonic()

    def boottime(self) -> float:
        """Return the same, but count the time in which the machine was suspended."""
        return time.clock_gettime(_BOOTTIME)
