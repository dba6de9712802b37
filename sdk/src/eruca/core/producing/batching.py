"""Linger batches: which messages travel together, and when a batch leaves.

A batch leaves at once while nothing is under way, so a lone message never waits. While something is
under way, waiting costs nothing that was not lost already: the batch fills until it is full, until
its first message has lingered long enough, or until what was under way has come back, whatever is
first. So batches grow with the load by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eruca.contract.limits import BATCH_COUNT_MAX, BODY_SIZE_MAX
from eruca.core.checked_numbers import check_count

BATCH_COUNT_DEFAULT: Final = 1_000
BATCH_SIZE_DEFAULT: Final = 2 * 1024 * 1024  # bytes, by estimate
LINGER_MS_DEFAULT: Final = 1.0
IN_FLIGHT_DEFAULT: Final = 4  # batches


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How large a batch may grow; a message too large for it travels alone."""

    count_max: int = BATCH_COUNT_DEFAULT
    size_max: int = BATCH_SIZE_DEFAULT  # bytes

    def __post_init__(self) -> None:
        check_count("batch_max_count", self.count_max, 1, BATCH_COUNT_MAX)
        check_count("batch_max_bytes", self.size_max, 1, BODY_SIZE_MAX)


def linger_seconds(
    *,
    is_full: bool,
    in_flight: int,
    in_flight_max: int,
    waited_seconds: float,
    linger_seconds_max: float,
) -> float | None:
    """Return how much longer a batch waits: 0 to send it, None until another has come back.

    Args:
        is_full: It takes no further message.
        in_flight: Batches of the same lane under way.
        in_flight_max: How many there may be.
        waited_seconds: Since its first message.
        linger_seconds_max: How long it may wait for company.
    """
    if in_flight == 0:
        return 0.0
    if in_flight >= in_flight_max:
        return None
    if is_full:
        return 0.0
    return max(linger_seconds_max - waited_seconds, 0.0)
