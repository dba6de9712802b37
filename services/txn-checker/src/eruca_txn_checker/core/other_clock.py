"""What time it is by another clock than ours: a broker's, or PostgreSQL's.

A broker's log tells times by the broker's clock, and ours may go otherwise: an hour ahead, every
transaction would look overdue the moment it was begun; an hour behind, none would be looked at for
that hour. So what the other clock says is compared with ours, whenever there is an answer that
tells. An answer says no more than that it was given between the request and its arrival: what is
known already stays, as long as that does not contradict it.
"""

from __future__ import annotations

from typing import Final

DIFFERENCE_MS_MIN: Final = 100  # less is the time that requests take


class OtherClock:
    """Tells another clock's time from ours; at first they are taken to agree."""

    def __init__(self) -> None:
        self.difference_ms = 0  # the other's time less ours

    def there(self, now_ms: int) -> int:
        """Return the other clock's time when ours is *now_ms*."""
        return now_ms + self.difference_ms

    def note(self, told_ms: int, *, asked_ms: int, answered_ms: int) -> None:
        """Learn from an answer.

        Args:
            told_ms: What the other clock said.
            asked_ms: Ours, before the request.
            answered_ms: Ours, after the answer.
        """
        if answered_ms < asked_ms:
            return  # our clock was set back meanwhile: the next answer tells
        difference = told_ms - (asked_ms + answered_ms) // 2
        noise = max(DIFFERENCE_MS_MIN, answered_ms - asked_ms)
        if abs(difference - self.difference_ms) > noise:
            self.difference_ms = 0 if abs(difference) <= noise else difference
