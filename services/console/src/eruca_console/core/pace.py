"""The time between two updates of an open page, so that all of them cost a bounded amount.

Pages of different callers share nothing, so their cost grows with the callers. If it is too large,
all pages are updated less often. Two things are bounded: the CPU time of this process, and the time
in which the cluster is asked, which stands for the load of the brokers. A list of thousands of
topics costs a broker as much as hundreds of small answers, so their number would not say it. A
broker that is busy with other work answers later, and then it is asked less.

The cost of an update is measured: what the process has spent on the last updates, by their number.
That contains whatever else it did, so people who click come first. It must not contain the time
without any open page, so the measurement restarts after it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SHARE_MAX: Final = 0.15  # of a core, for updates
CLUSTER_SHARE_MAX: Final = 0.1  # of the time, in which updates ask the cluster
PERIOD_SECONDS_MAX: Final = 180.0
SAMPLE_COUNT: Final = 20  # updates, of which the cost is a mean …
SAMPLE_SECONDS_MAX: Final = 30.0  # … or those of so long, so that a slow pace recovers soon


class Spent(NamedTuple):
    """All that the process has spent so far.

    Attributes:
        cpu_seconds: CPU time.
        asked_seconds: Time in which the cluster was asked (:mod:`.busy_time`).
        at_seconds: The present time, of any monotonic clock.
    """

    cpu_seconds: float
    asked_seconds: float
    at_seconds: float


class Pace:
    """Says how long to wait, by what updates cost.

    Args:
        shortest_seconds: The time between two updates if there is room for it.
    """

    def __init__(self, shortest_seconds: float) -> None:
        self._shortest_seconds = shortest_seconds
        self._needed_seconds = 0.0  # for one update, within both bounds
        self._begun: Spent | None = None
        self._count = 0  # updates since then

    def restart(self) -> None:
        """Forget the measured cost; to be called when the first page opens."""
        self._needed_seconds = 0.0
        self._begun = None
        self._count = 0

    def updated(self, spent: Spent) -> None:
        """Note an update, after which so much was spent."""
        if self._begun is None:
            self._begun = spent
            return
        self._count += 1
        seconds = spent.at_seconds - self._begun.at_seconds
        if self._count == SAMPLE_COUNT or seconds >= SAMPLE_SECONDS_MAX:
            cpu_seconds = (spent.cpu_seconds - self._begun.cpu_seconds) / self._count
            asked_seconds = (spent.asked_seconds - self._begun.asked_seconds) / self._count
            self._needed_seconds = max(cpu_seconds / SHARE_MAX, asked_seconds / CLUSTER_SHARE_MAX)
            self._begun, self._count = spent, 0

    def period_seconds(self, pages: int) -> float:
        """Return the time from one update of a page to the next.

        Args:
            pages: Open pages.
        """
        needed = pages * self._needed_seconds
        return max(self._shortest_seconds, min(needed, PERIOD_SECONDS_MAX))
