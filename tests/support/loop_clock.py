"""An event loop's clock that a test moves forward, so that no real time decides what it sees."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class LoopClock:
    """Offset of the running event loop's clock; its timers follow it."""

    def __init__(self) -> None:
        self._ahead_seconds = 0.0
        self._real = asyncio.get_running_loop().time

    def time(self) -> float:
        """Return the time, as the event loop has it."""
        return self._real() + self._ahead_seconds

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass at once."""
        self._ahead_seconds += seconds


@contextmanager
def moved_clock() -> Iterator[LoopClock]:
    """Let the test move the clock of the running event loop while the block runs."""
    clock = LoopClock()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "time", clock.time)
        yield clock
