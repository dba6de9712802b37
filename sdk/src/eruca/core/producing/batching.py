"""Linger batches: which messages share a batch, and when a batch is sent.

A batch is sent at once while no other is under way, so a lone message never waits. While another
batch is under way, waiting costs nothing. The batch fills until it is full, until its first message
has lingered long enough, or until the other batch has returned, whichever is first. So batches grow
with the load.

All senders may wait for one batch. If their next messages formed one batch again, broker and
producer would wait for each other in turns. So a batch for any queue is full at :data:`TURN_COUNT`
messages or :data:`TURN_BYTES` while fewer than two others of its lane wait or are under way: the
broker stores one while the next one is built. Where only one may be under way, there are no turns
to take, and a full batch carries more in a round trip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eruca.contract.limits import BATCH_COUNT_MAX, BODY_SIZE_MAX
from eruca.core.checked_arguments import check_fields
from eruca.core.checked_numbers import check_count, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Options for grouping messages into batches.

    Args:
        count_max: Maximum number of messages in a batch. For any queue of a topic, it is at most
            500 while fewer than two batches wait or are under way, if more than one may be.
        bytes_max: Maximum number of bytes in a batch, estimated; at most 1 MiB likewise. A larger
            message is sent alone.
        linger_ms: How long a batch may wait for more messages while another is under way.
        in_flight_max: Maximum number of batches under way, per topic; of ordered messages, per
            queue, and only batches that have at most 1 MiB together.

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
TURN_COUNT: Final = 500  # messages of a batch that takes turns with another
TURN_BYTES: Final = 1024 * 1024  # its bytes, estimated
_IN_TURNS: Final = 2  # batches: one is stored while another is built


def full_at(limits: Batching, ahead: int, *, takes_turns: bool) -> tuple[int, int]:
    """Return the count of messages and the bytes at which a new batch is full.

    Args:
        limits: Maximum size of a batch.
        ahead: Batches of the same lane that wait, or are under way.
        takes_turns: Whether several batches of the lane may be under way, in any order.
    """
    if ahead >= _IN_TURNS or not takes_turns:
        return limits.count_max, limits.bytes_max
    return min(limits.count_max, TURN_COUNT), min(limits.bytes_max, TURN_BYTES)


def linger_seconds(
    *,
    is_full: bool,
    in_flight: int,
    in_flight_max: int,
    waited_seconds: float,
    linger_seconds_max: float,
) -> float | None:
    """Return how much longer a batch waits: 0 to send it, None until another has returned.

    Args:
        is_full: Whether it accepts no further message.
        in_flight: Batches of the same lane under way.
        in_flight_max: Maximum number of them.
        waited_seconds: Time since its first message.
        linger_seconds_max: How long it may wait for more messages.
    """
    assert in_flight_max >= 1, "a batch would wait for ever"
    if in_flight == 0:
        return 0.0
    if in_flight >= in_flight_max:
        return None
    if is_full:
        return 0.0
    return max(linger_seconds_max - waited_seconds, 0.0)
