"""A member's session at one broker, as the member reckons it.

A heartbeat renews it, and with it every queue lock at that broker. The member counts from the
moment it *sent* the last heartbeat that was answered, the broker from when it received it: so the
member gives its queues up no later than the broker gives them away. Whoever asks passes the time;
a process that was stopped for a while finds its session over before it hands out another message.

Concurrency rule: threads may ask, and one may renew while the event loop does; each number is
stored whole. Of two renewals at once the earlier may count, which is the safe side.
"""

from __future__ import annotations

import math
from typing import Final

BEATS_PER_SESSION: Final = 3  # heartbeats: two may be lost


class Session:
    """When it was renewed, and how long that lasts."""

    __slots__ = ("renewed_at", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.renewed_at = -math.inf  # when the last heartbeat that was answered had been sent

    @property
    def expires_at(self) -> float:
        """When it ends, unless it is renewed."""
        return self.renewed_at + self.seconds

    @property
    def is_begun(self) -> bool:
        """Whether there has been one."""
        return self.renewed_at > -math.inf

    def renew(self, sent_at: float, seconds: float) -> None:
        """Note that a heartbeat sent then was answered, with how long the session is."""
        self.renewed_at = max(self.renewed_at, sent_at)
        self.seconds = seconds

    def age(self, now: float) -> float:
        """Return the seconds since the last renewal was sent."""
        return now - self.renewed_at

    def is_over(self, now: float) -> bool:
        """Tell whether it has ended, or never begun."""
        return self.age(now) > self.seconds

    def end(self) -> None:
        """Forget it."""
        self.renewed_at = -math.inf
