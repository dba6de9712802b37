"""Start positions of a consumer, and its policy for a position outside the queue.

A group's committed offset always comes first; ``start`` applies only if there is none. A queue that
appears while the consumer runs may be new, or its broker may have been down. There ``latest`` means
the time when the consumer started, by its own clock: it reads a new queue from its beginning, and
of an old queue the messages stored since. With ``committed`` it also reads a new queue from its
beginning; it refuses an old queue without an offset, as always.

Source: RocketMQ 5.3, ``ConsumeFromWhere``, ``DefaultLitePullConsumerImpl``.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from eruca.contract.errors import OffsetOutOfRangeError
from eruca.contract.wire import PullStatus
from eruca.core.messages.message_queue import MessageQueue

StartPosition: TypeAlias = Literal["earliest", "latest", "committed"]
OutOfRangePolicy: TypeAlias = Literal["earliest", "latest", "nearest", "error"]

START_POSITIONS: Final[tuple[StartPosition, ...]] = ("earliest", "latest", "committed")
OUT_OF_RANGE_POLICIES: Final = ("earliest", "latest", "nearest", "error")


def offset_after_miss(
    policy: OutOfRangePolicy,
    status: PullStatus,
    queue: MessageQueue,
    offset: int,
    *,
    min_offset: int,
    max_offset: int,
) -> int:
    """Return the offset to continue at after a pull at *offset*, which is outside the queue.

    Raises:
        OffsetOutOfRangeError: The policy leaves the decision to the user.
    """
    if policy == "earliest":
        return min_offset
    if policy == "latest":
        return max_offset
    if policy == "nearest":
        return min_offset if status is PullStatus.OFFSET_TOO_SMALL else max_offset
    place = f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
    if status is PullStatus.OFFSET_TOO_SMALL:
        detail = (
            f"{place} now begins at {min_offset}: retention has deleted {min_offset - offset}"
            f" messages from {offset} on"
        )
    else:
        detail = (
            f"{place} ends at {max_offset}, before offset {offset}: it was deleted and created"
            " again, or its broker lost unflushed messages"
        )
    raise OffsetOutOfRangeError(
        detail,
        fix="seek, or set on_offset_out_of_range",
        min_offset=min_offset,
        max_offset=max_offset,
    )
