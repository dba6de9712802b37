"""Queue selectors: the sender's own rule for a message's queue.

A selector gets a topic's queues in publish order and an argument, and returns one of the queues.
Equal arguments keep their queue only while the number of queues does not change. So related
messages stay in order only under a stable topology.

Source: RocketMQ 5.3, ``SelectMessageQueueByHash``, ``SelectMessageQueueByRandom``,
``SelectMessageQueueByMachineRoom``. The last one was never implemented there. Here it is, with the
names that ``AllocateMachineRoom`` expects: a broker in a machine room is called ``ROOM@NAME``.
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
    """Return the queue that *selector* chooses.

    Raises:
        ValidationError: Its result is not one of *queues*.
    """
    queue = selector(queues, argument)
    if queue not in queues:
        raise ValidationError(
            f"expected one of the topic's queues from the queue selector, found {queue!r}",
            fix="return one of the queues that the selector was called with",
        )
    return queue


def by_hash(queues: Sequence[MessageQueue], argument: SelectorArgument) -> MessageQueue:
    """Return the queue of the argument's hash: equal arguments go to one queue.

    Raises:
        ValidationError: The argument's type has no hash that is equal in all clients.
    """
    return queues[queue_of_hash(argument_hash(argument), len(queues))]


def by_random(random: RandomSource) -> QueueSelector:
    """Return a selector that picks any queue, all with equal probability."""

    def select(queues: Sequence[MessageQueue], _: SelectorArgument) -> MessageQueue:
        return queues[random.randrange(len(queues))]

    return select


def by_machine_room(rooms: Collection[str], then: QueueSelector = by_hash) -> QueueSelector:
    """Return a selector that chooses by *then* among the queues in *rooms*.

    If the route has no broker in those rooms, it chooses among all queues: a message in a distant
    room is better than none.
    """

    def select(queues: Sequence[MessageQueue], argument: SelectorArgument) -> MessageQueue:
        near = [queue for queue in queues if machine_room(queue.broker_name) in rooms]
        return then(near or queues, argument)

    return select


def machine_room(broker_name: str) -> str | None:
    """Return the room in a broker's name; None if there is none."""
    room, separator, _ = broker_name.partition(ROOM_SEPARATOR)
    return room if separator else None


def argument_hash(argument: SelectorArgument) -> int:
    """Return Java's ``hashCode`` of the argument, so that Java's producers choose the same queue.

    A number within 32 bits counts as an Integer, any other as a Long; the two differ only for small
    negative numbers. None hashes to 0.

    Raises:
        ValidationError: The type is none of these, or the number does not fit into 64 bits.
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
        f"selector argument: expected a str, a bool or an int, found {argument!r}",
        fix="give a str, a bool, or an int of up to 64 bits",
    )
