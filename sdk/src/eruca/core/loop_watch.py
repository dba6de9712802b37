"""Distinguish an event loop that runs from one that is blocked, and from one that hangs.

A thread schedules a callback in the loop, and checks some time later whether it has run::

    turning ──asked, and no answer by the next look──► late ──for longer than the limit──► hung
       ▲                                                │                                   │
       └──────────────── the loop has answered ─────────┴───────────────────────────────────┘

The limit is for one handler. One iteration of the loop may run several blocking handlers, so the
time is reset when a handler begins.

Concurrency rule: one thread asks and looks, the loop answers. The answer is one atomic store. There
is one request at a time, so an answer always belongs to the last one.
"""

from __future__ import annotations

from enum import StrEnum


class LoopState(StrEnum):
    """The state of an event loop, as seen from another thread."""

    TURNING = "turning"
    LATE = "late"
    HUNG = "hung"


class LoopWatch:
    """Watch one event loop.

    Args:
        limit: Seconds for one handler.
    """

    __slots__ = ("_asked_at", "_limit")

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._asked_at: float | None = None

    def ask(self, now: float) -> None:
        """Record that the loop, which was running, is asked."""
        self._asked_at = now

    def answer(self) -> None:
        """Record that the loop runs; called by the loop."""
        self._asked_at = None

    def look(self, now: float, begun_at: float) -> LoopState:
        """Return the loop's state; *begun_at* is the last start of a handler."""
        asked_at = self._asked_at
        if asked_at is None:
            return LoopState.TURNING
        blocked_seconds = now - max(asked_at, begun_at)
        return LoopState.HUNG if blocked_seconds > self._limit else LoopState.LATE
