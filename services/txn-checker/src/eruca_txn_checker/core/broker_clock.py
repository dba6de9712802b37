"""What time it is at a broker.

A broker's log tells times by the broker's clock, and ours may go otherwise: an hour ahead, every
check would look overdue the moment it was granted, and a transaction would be given up within
seconds. So each grant of a check, which says when it was, is compared with our own clock.
"""

from __future__ import annotations

from typing import Final

DIFFERENCE_MS_MIN: Final = 100  # less is the time that requests take


class BrokerClock:
    """Tells a broker's time from ours; at first they are taken to agree."""

    def __init__(self) -> None:
        self.difference_ms = 0  # the broker's time less ours

    def at_broker(self, now_ms: int) -> int:
        """Return the broker's time when ours is *now_ms*."""
        return now_ms + self.difference_ms

    def note(self, told_ms: int, *, asked_ms: int, answered_ms: int) -> None:
        """Learn from an answer.

        Args:
            told_ms: What the broker's clock said.
            asked_ms: Ours, before the request.
            answered_ms: Ours, after the answer.
        """
        if answered_ms < asked_ms:
            return  # our clock was set back meanwhile: the next answer tells
        difference = told_ms - (asked_ms + answered_ms) // 2
        is_noise = abs(difference) <= max(DIFFERENCE_MS_MIN, answered_ms - asked_ms)
        self.difference_ms = 0 if is_noise else difference
