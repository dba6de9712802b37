"""The time in which at least one question to the cluster was under way.

Questions at the same time wait for each other, so the sum of what each took grows with their
number. This does not: divided by the number of updates, it says what one of them costs.

A broker that is away keeps a question waiting until its time limit, and is not loaded by that. So
waiting counts only for a while after the latest question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

WAIT_SECONDS_MAX: Final = 0.5  # since the latest question; a busy broker's long list takes less


class BusyTime:
    """Counts that time.

    Args:
        now: Returns monotonic seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._count = 0  # questions under way
        self._counted_until = 0.0  # while there is one
        self._latest = 0.0
        self._seconds = 0.0

    def begin(self) -> None:
        """Note that a question is asked."""
        self._advance()
        self._count += 1
        self._latest = self._counted_until = self._now()

    def end(self) -> None:
        """Note that a question has its answer, or has failed."""
        assert self._count, "more answers than questions"
        self._advance()
        self._count -= 1

    @property
    def seconds(self) -> float:
        """The time so far."""
        self._advance()
        return self._seconds

    def _advance(self) -> None:
        if self._count:
            until = min(self._now(), self._latest + WAIT_SECONDS_MAX)
            if until > self._counted_until:
                self._seconds += until - self._counted_until
                self._counted_until = until
