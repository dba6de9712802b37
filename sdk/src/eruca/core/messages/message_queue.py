"""A message queue: one numbered queue of a topic on one broker, and the choice of one to send to.

Queues sort by topic, then broker name, then number, and so do tuples: every client that sorts the
same queues gets the same list. Java sorts names by UTF-16 code unit and Python by code point, which
is the same for the ASCII names the contract allows.

Source: RocketMQ 5.3, ``MessageQueue``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from eruca.contract.errors import ValidationError


class MessageQueue(NamedTuple):
    """One queue of a topic."""

    topic: str
    broker_name: str
    queue_id: int  # 0, 1, … on this broker


def checked_queue(queue: MessageQueue, argument: str = "queue") -> MessageQueue:
    """Return *queue*, as a program gives it.

    Raises:
        ValidationError: It is something else, a queue's number, say; *argument* is for the error.
    """
    if not isinstance(queue, MessageQueue):
        raise ValidationError(
            f"{argument}: {queue!r} is no MessageQueue",
            fix='give topic, broker and number: eruca.MessageQueue("orders", "broker-a", 3); those '
            "of a topic are in its route, and a message's own is message.queue",
        )
    return queue


class ChoiceReason(StrEnum):
    """The reasons for choosing a queue."""

    ROUND_ROBIN = "round_robin"  # it was its turn, and nothing spoke against its broker
    PROBE = "probe"  # its broker's isolation is over; this message finds out whether it has mended
    ISOLATED = "isolated"  # every broker is isolated; this one at least was reached
    LAST_RESORT = "last_resort"  # nothing is left to avoid: the turn alone decided
    LEAST_BAD = "least_bad"  # one of the better half of the known brokers, as 4.x falls back


class QueueChoice(NamedTuple):
    """The queue of the next message, and the reason for the choice."""

    queue: MessageQueue
    reason: ChoiceReason
