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
from eruca.core.checked_arguments import check_fields
from eruca.core.checked_numbers import check_count, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Options for gathering messages into batches.

    Args:
        count_max: Messages in a batch.
        bytes_max: Bytes in a batch, by estimate; a larger message travels alone.
        linger_ms: The time a batch may wait for company while another is under way.
        in_flight_max: Batches under way at a time, per topic.

    Raises:
        ValidationError: A value is not allowed.
    """

    count_max: int = 1_000
    bytes_max: int = 2 * 1024 * 1024
    linger_ms: float = 1.0
    in_flight_max: int = 4

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self, "batching")
        check_count("batching.count_max", self.count_max, 1, BATCH_COUNT_MAX)
        check_count("batching.bytes_max", self.bytes_max, 1, BODY_SIZE_MAX)
        check_range("batching.linger_ms", self.linger_ms, 0)
        check_count("batching.in_flight_max", self.in_flight_max, 1)


BATCHING_DEFAULT: Final = Batching()


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
    assert in_flight_max >= 1, "a batch would wait for ever"
    if in_flight == 0:
        return 0.0
    if in_flight >= in_flight_max:
        return None
    if is_full:
        return 0.0
    return max(linger_seconds_max - waited_seconds, 0.0)
