"""What an allocation strategy is, and the one way to ask it: with sorted lists, for one member.

Every member works out its own share from the queue list and the member list it last fetched;
nobody tells it. So :func:`allocate` sorts both lists instead of trusting the order they came in,
and gives nothing to a member that its list does not hold (yet): to guess a share would let two
members reach for one queue.

Members that sort the same lists and use the same strategy divide a topic without overlap. Members
of one group with *different* strategies do not, and no strategy can notice; the queue locks at the
brokers then keep one of the two waiting.

Source: RocketMQ 5.3, ``AllocateMessageQueueStrategy``, ``AbstractAllocateMessageQueueStrategy``,
``RebalanceImpl.rebalanceByTopic``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Protocol

from eruca.core.messages.message_queue import MessageQueue


class AllocationFault(StrEnum):
    """Why no share can be worked out, for programs."""

    MEMBER_EMPTY = "current_consumer_empty"
    QUEUES_EMPTY = "queues_empty"
    MEMBERS_EMPTY = "consumers_empty"
    VIRTUAL_NODES_NEGATIVE = "virtual_nodes_negative"
    QUEUE_ROOM_UNKNOWN = "room_unknown_for_queue"
    MEMBER_ROOM_UNKNOWN = "room_unknown_for_consumer"


class AllocationError(ValueError):
    """A strategy was asked what it cannot answer; ``fault`` says why, for programs."""

    def __init__(self, fault: AllocationFault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault


class AllocationStrategy(Protocol):
    """A rule that gives each member its share of a topic's queues."""

    @property
    def name(self) -> str:
        """The name RocketMQ's tools show for this rule."""

    def share(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        """Return what *member* should read, given both lists in the order all members use.

        A member that *members* does not hold gets nothing.

        Raises:
            AllocationError: The member's name or one of the lists is empty; or the rule's own
                reason, such as a queue whose machine room nobody knows.
        """


def allocate(
    strategy: AllocationStrategy,
    queues: Iterable[MessageQueue],
    members: Iterable[str],
    member: str,
) -> list[MessageQueue]:
    """Return the queues of *queues* that *member* should read until either list changes, sorted.

    The list is empty where there is nothing to share out, where *members* does not hold *member*,
    and where the others' shares leave nothing. What a strategy names beyond *queues* (a configured
    list may) is left out.

    Raises:
        AllocationError: The strategy's own reason; keep the share you have.
    """
    all_queues = sorted(set(queues))
    all_members = sorted_members(members)
    if not all_queues or member not in all_members:
        return []
    share = set(strategy.share(all_queues, all_members, member))
    return [queue for queue in all_queues if queue in share]


def sorted_members(members: Iterable[str]) -> list[str]:
    """Return *members*, each once, in Java's order, by UTF-16 code unit.

    It differs from Python's, by code point, for characters beyond the basic plane only.
    """
    return sorted(set(members), key=utf16_order)


def utf16_order(text: str) -> bytes:
    """Return the key that sorts texts as Java does."""
    return text.encode("utf-16-be", "surrogatepass")


def is_to_share(queues: Sequence[MessageQueue], members: Sequence[str], member: str) -> bool:
    """Check what every strategy is given; tell whether *member* is among those who share.

    Raises:
        AllocationError: The member's name or a list is empty, looked at in this order.
    """
    if not member:
        raise AllocationError(AllocationFault.MEMBER_EMPTY, "the member's own id is empty")
    if not queues:
        raise AllocationError(AllocationFault.QUEUES_EMPTY, "there are no queues to share out")
    if not members:
        raise AllocationError(AllocationFault.MEMBERS_EMPTY, "there are no members to share")
    return member in members
