"""Where a consumer starts in a queue, and what it does when nothing is at its position.

A group's committed offset always comes first; ``start`` counts only where there is none. A queue
that appears while the consumer runs may be a new one, or an old one whose broker was away. So there
``latest`` is the moment at which the consumer began, by its own clock: a new queue is read from its
beginning, and of an old one what has come since. With ``committed`` a new queue is read from its
beginning, too; an old one without an offset is refused as ever.

Source: RocketMQ 5.3, ``ConsumeFromWhere``, ``DefaultLitePullConsumerImpl``.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from eruca.contract.errors import OffsetOutOfRangeError
from eruca.contract.wire import PullStatus
from eruca.core.messages.message_queue import MessageQueue

StartPosition: TypeAlias = Literal["earliest", "latest", "committed"]
OutOfRangePolicy: TypeAlias = Literal["earliest", "latest", "nearest", "error"]

START_POSITIONS: Final = ("earliest", "latest", "committed")
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
    """Return where to read on after a pull at *offset*, which is outside of the queue.

    Raises:
        OffsetOutOfRangeError: The policy is to let the user decide.
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
            f"{place} begins at {min_offset} now: the {min_offset - offset} messages from {offset}"
            " on have been deleted by retention"
        )
    else:
        detail = (
            f"{place} ends at {max_offset}, before offset {offset}: it has been deleted and made"
            " anew, or its broker lost what was not flushed"
        )
    raise OffsetOutOfRangeError(
        detail,
        fix="seek, or say where to go on by on_offset_out_of_range",
        min_offset=min_offset,
        max_offset=max_offset,
    )
