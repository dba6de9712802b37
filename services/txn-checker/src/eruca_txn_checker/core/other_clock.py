"""Estimate the time of another clock: a broker's, or PostgreSQL's.

A broker's log carries times of the broker's clock, and ours may differ. If ours were an hour ahead,
every transaction would look overdue at its beginning. If it were an hour behind, none would be
checked for that hour. So each answer that carries the other clock's time is compared with ours. An
answer proves only that its time lies between the request and its arrival. So the known difference
stays as long as it does not contradict the answer.
"""

from __future__ import annotations

from typing import Final

DIFFERENCE_MS_MIN: Final = 100  # a smaller difference may be the duration of the request


class OtherClock:
    """Converts our time to another clock's; at first the two are assumed equal."""

    def __init__(self) -> None:
        self.difference_ms = 0  # other clock minus ours

    def there(self, now_ms: int) -> int:
        """Return the other clock's time when ours is *now_ms*."""
        return now_ms + self.difference_ms

    def note(self, told_ms: int, *, asked_ms: int, answered_ms: int) -> None:
        """Update the difference from an answer.

        Args:
            told_ms: The other clock's time in the answer.
            asked_ms: Our time before the request.
            answered_ms: Our time after the answer.
        """
        if answered_ms < asked_ms:
            return  # our clock was set back meanwhile: wait for the next answer
        difference = told_ms - (asked_ms + answered_ms) // 2
        noise = max(DIFFERENCE_MS_MIN, answered_ms - asked_ms)
        if abs(difference - self.difference_ms) > noise:
            self.difference_ms = 0 if abs(difference) <= noise else difference
