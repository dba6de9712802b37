"""A message queue (one numbered queue of a topic on one broker), and the choice of one for a send.

Queues sort by topic, then broker name, then number, like tuples. So all clients that sort the same
queues get the same list. Java sorts names by UTF-16 code unit and Python by code point. Both agree
for the ASCII names that the contract allows.

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
    """Return *queue* if it is a MessageQueue.

    Raises:
        ValidationError: It is another value, for example a queue's number; *argument* is for the
            error.
    """
    if not isinstance(queue, MessageQueue):
        raise ValidationError(
            f"{argument}: expected a MessageQueue, found {queue!r}",
            fix='use a queue such as eruca.MessageQueue("orders", "broker-a", 3); a topic\'s'
            " queues are in its route, and a message's own is message.queue",
        )
    return queue


class ChoiceReason(StrEnum):
    """The reasons for choosing a queue."""

    ROUND_ROBIN = "round_robin"  # the next queue, and its broker is not avoided
    PROBE = "probe"  # its broker's isolation has ended; this message tests whether it works again
    ISOLATED = "isolated"  # every broker is isolated; this one was at least reached
    LAST_RESORT = "last_resort"  # every broker should be avoided: the next queue
    LEAST_BAD = "least_bad"  # one of the better half of the known brokers, as 4.x falls back


class QueueChoice(NamedTuple):
    """The queue of the next message, and the reason for the choice."""

    queue: MessageQueue
    reason: ChoiceReason
