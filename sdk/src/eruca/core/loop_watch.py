"""Telling an event loop that turns from one that is blocked, and from one that hangs.

A thread asks, by a callback that the loop runs when it gets to it, and looks some time later::

    turning ──asked, and no answer by the next look──► late ──for longer than the limit──► hung
       ▲                                                │                                   │
       └──────────────── the loop has answered ─────────┴───────────────────────────────────┘

The limit is for one handler. A turn of the loop may run several that block, one after the other, so
the time counts anew when one begins.

Concurrency rule: one thread asks and looks, the loop answers; the answer is one store. There is one
question at a time, so an answer is always to the last.
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
        """Note that the loop, which was turning, is asked."""
        self._asked_at = now

    def answer(self) -> None:
        """Note that the loop turns; called by the loop."""
        self._asked_at = None

    def look(self, now: float, begun_at: float) -> LoopState:
        """Return the loop's state, given when it last began a handler."""
        asked_at = self._asked_at
        if asked_at is None:
            return LoopState.TURNING
        blocked_seconds = now - max(asked_at, begun_at)
        return LoopState.HUNG if blocked_seconds > self._limit else LoopState.LATE
