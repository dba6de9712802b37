"""The time between two updates of an open page, so that all of them take a bounded part of a core.

Pages of different callers share nothing, so their cost grows with the callers. If it is too large,
all pages are updated less often. The cost of an update is measured: the CPU time of the process for
the last updates, by their number. It contains whatever else the process did, so people who click
come first.
"""

from __future__ import annotations

from typing import Final

SHARE_MAX: Final = 0.15  # of a core, for updates
PERIOD_SECONDS_MAX: Final = 60.0
SAMPLE_COUNT: Final = 20  # updates, of which the cost is a mean


class Pace:
    """Says how long to wait, by what updates cost.

    Args:
        shortest_seconds: The time between two updates if there is room for it.
    """

    def __init__(self, shortest_seconds: float) -> None:
        self._shortest_seconds = shortest_seconds
        self._cost_seconds = 0.0  # CPU time of one update
        self._begun_at: float | None = None  # CPU time of the process
        self._count = 0  # updates since then

    def updated(self, cpu_seconds: float) -> None:
        """Note an update.

        Args:
            cpu_seconds: The CPU time that the process has used so far.
        """
        if self._begun_at is None:
            self._begun_at = cpu_seconds
            return
        self._count += 1
        if self._count == SAMPLE_COUNT:
            self._cost_seconds = (cpu_seconds - self._begun_at) / self._count
            self._begun_at, self._count = cpu_seconds, 0

    def period_seconds(self, pages: int) -> float:
        """Return the time from one update of a page to the next.

        Args:
            pages: Open pages.
        """
        needed = pages * self._cost_seconds / SHARE_MAX
        return max(self._shortest_seconds, min(needed, PERIOD_SECONDS_MAX))
