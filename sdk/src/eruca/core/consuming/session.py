"""A member's session at one broker, as the member computes it.

A heartbeat renews the session and all queue locks at that broker. The member counts from the moment
it *sent* the last answered heartbeat, the broker from the moment it received that heartbeat. So the
member stops reading its queues no later than the broker gives them away. Callers pass the time. A
process that was stopped for a while thus detects that its session has expired before it delivers
another message.

Concurrency rule: any thread may read it, and a thread may renew it while the event loop does. Each
number is stored atomically. Of two concurrent renewals the earlier may win, which is safe.
"""

from __future__ import annotations

import math
from typing import Final

BEATS_PER_SESSION: Final = 3  # heartbeats: two may be lost


class Session:
    """The time of the last renewal and its duration."""

    __slots__ = ("renewed_at", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.renewed_at = -math.inf  # send time of the last answered heartbeat

    @property
    def expires_at(self) -> float:
        """End of the session, unless it is renewed."""
        return self.renewed_at + self.seconds

    @property
    def is_begun(self) -> bool:
        """True if the session has been renewed at least once."""
        return self.renewed_at > -math.inf

    def renew(self, sent_at: float, seconds: float) -> None:
        """Record an answered heartbeat, sent at *sent_at*, and the session's length."""
        self.renewed_at = max(self.renewed_at, sent_at)
        self.seconds = seconds

    def age(self, now: float) -> float:
        """Return the seconds since the last renewal was sent."""
        return now - self.renewed_at

    def is_over(self, now: float) -> bool:
        """Return whether the session has expired, or never begun."""
        return self.age(now) > self.seconds

    def end(self) -> None:
        """End the session."""
        self.renewed_at = -math.inf
