"""Queue selectors: the sender's own rule for which queue a message goes to.

A selector gets a topic's queues in publish order and an argument, and returns one of them. Equal
arguments keep their queue only while the number of queues stays the same, so messages that belong
together stay in order only under a stable topology.

Source: RocketMQ 5.3, ``SelectMessageQueueByHash``, ``SelectMessageQueueByRandom``,
``SelectMessageQueueByMachineRoom``. The last one was never written there; here it is, with the
naming that ``AllocateMachineRoom`` expects: a broker of a machine room is called ``ROOM@NAME``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

from eruca.contract.errors import ValidationError
from eruca.contract.hashing import long_hash, queue_of_hash, string_hash
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.routing.latency_fault import RandomSource

SelectorArgument: TypeAlias = str | int | bool | None
QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], SelectorArgument], MessageQueue]

ROOM_SEPARATOR: Final = "@"
_TRUE_HASH: Final = 1231  # Boolean.hashCode
_FALSE_HASH: Final = 1237


def select_queue(
    selector: QueueSelector, queues: Sequence[MessageQueue], argument: SelectorArgument
) -> MessageQueue:
    """Return the queue that *selector* picks.

    Raises:
        ValidationError: It returned something that is not one of *queues*.
    """
    queue = selector(queues, argument)
    if queue not in queues:
        raise ValidationError(
            f"the queue selector returned {queue!r}, which is none of the topic's queues",
            fix="return one of the queues the selector was called with",
        )
    return queue


def by_hash(queues: Sequence[MessageQueue], argument: SelectorArgument) -> MessageQueue:
    """Return the queue of the argument's hash: equal arguments go to one queue.

    Raises:
        ValidationError: The argument is of a type without a hash that all clients agree on.
    """
    return queues[queue_of_hash(argument_hash(argument), len(queues))]


def by_random(random: RandomSource) -> QueueSelector:
    """Return a selector that picks any queue, all with equal chance."""

    def select(queues: Sequence[MessageQueue], _: SelectorArgument) -> MessageQueue:
        return queues[random.randrange(len(queues))]

    return select


def by_machine_room(rooms: Collection[str], then: QueueSelector = by_hash) -> QueueSelector:
    """Return a selector that stays within *rooms* and picks by *then* among their queues.

    Where no broker of those rooms is in the route it picks among all queues: a message in a far
    room is better than none.
    """

    def select(queues: Sequence[MessageQueue], argument: SelectorArgument) -> MessageQueue:
        near = [queue for queue in queues if machine_room(queue.broker_name) in rooms]
        return then(near or queues, argument)

    return select


def machine_room(broker_name: str) -> str | None:
    """Return the room that a broker's name puts it in; None for a name without one."""
    room, separator, _ = broker_name.partition(ROOM_SEPARATOR)
    return room if separator else None


def argument_hash(argument: SelectorArgument) -> int:
    """Return Java's ``hashCode`` of the argument, so that Java's producers pick the same queue.

    A number within 32 bits counts as an Integer, any other as a Long; the two differ for small
    negative numbers only. None hashes to 0.

    Raises:
        ValidationError: It is none of these, or does not fit into 64 bits.
    """
    if argument is None:
        return 0
    if isinstance(argument, bool):
        return _TRUE_HASH if argument else _FALSE_HASH
    if isinstance(argument, str):
        return string_hash(argument)
    if isinstance(argument, int) and -(2**63) <= argument < 2**63:
        return argument if -(2**31) <= argument < 2**31 else long_hash(argument)
    raise ValidationError(
        f"{argument!r} cannot be a selector's argument",
        fix="give a str, a bool, or an int of up to 64 bits",
    )
