"""Clocks for tests: one that stands still until it is moved, and one that is set wrong."""

from __future__ import annotations

from eruca_chassis.clock import SystemClock


class ManualClock:
    """All of a :class:`eruca_chassis.clock.Clock`'s readings, moved by hand."""

    def __init__(self, *, now_ms: int = 1_700_000_000_000, monotonic: float = 1_000.0) -> None:
        self._now_ms = now_ms
        self._monotonic = monotonic

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def boottime(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass on all."""
        self._now_ms += round(seconds * 1000)
        self._monotonic += seconds


class WrongClock(SystemClock):
    """The machine's clock, ahead by some seconds, or behind."""

    def __init__(self, *, ahead_seconds: float) -> None:
        self.ahead_seconds = ahead_seconds

    def now_ms(self) -> int:
        return super().now_ms() + round(self.ahead_seconds * 1000)
