"""Time as an argument: what reads a clock takes one, so that a test can hold the hands.

Two readings, never mixed: ``now_ms`` is the wall's, to be stored and shown, and may step;
``monotonic`` only ever grows, and is for waits, deadlines and expiry.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a service reads the time."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since 1970 (UTC)."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment in the past; never goes back."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since 1970 (UTC)."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds since some moment in the past; never goes back."""
        return time.monotonic()
