"""Time as a parameter: code that reads a clock takes one, so that a test can set it.

Two readings, never mixed: ``now_ms`` is wall-clock time for storing and showing, and may jump;
``monotonic`` only grows, and is for waits, deadlines and expiry.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time for a service."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since 1970 (UTC)."""
        ...

    def monotonic(self) -> float:
        """Return monotonic time in seconds, from an unspecified start."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since 1970 (UTC)."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return monotonic time in seconds, from an unspecified start."""
        return time.monotonic()
