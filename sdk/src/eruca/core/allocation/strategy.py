"""Allocation strategies, and the one way to call them: with sorted lists, for one member.

Every member computes its own share from the queue list and the member list that it last fetched;
there is no leader. So :func:`allocate` sorts both lists instead of trusting their order. A member
that its list does not contain (yet) gets no queues: with a guessed share, two members would try to
lock one queue.

Members with the same lists and the same strategy divide a topic without overlap. Members of one
group with *different* strategies do not, and no strategy can detect this. The queue locks at the
brokers then make one of the two wait.

Source: RocketMQ 5.3, ``AllocateMessageQueueStrategy``, ``AbstractAllocateMessageQueueStrategy``,
``RebalanceImpl.rebalanceByTopic``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Protocol

from eruca.core.messages.message_queue import MessageQueue


class AllocationFault(StrEnum):
    """Reasons why a share cannot be computed, for programs."""

    MEMBER_EMPTY = "current_consumer_empty"
    QUEUES_EMPTY = "queues_empty"
    MEMBERS_EMPTY = "consumers_empty"
    VIRTUAL_NODES_NEGATIVE = "virtual_nodes_negative"
    QUEUE_ROOM_UNKNOWN = "room_unknown_for_queue"
    MEMBER_ROOM_UNKNOWN = "room_unknown_for_consumer"


class AllocationError(ValueError):
    """A strategy cannot compute a share; ``fault`` has the reason, for programs."""

    def __init__(self, fault: AllocationFault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault


class AllocationStrategy(Protocol):
    """A rule that gives each member its share of a topic's queues."""

    @property
    def name(self) -> str:
        """The name that RocketMQ's tools show for this rule."""

    def share(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        """Return the queues that *member* should read, from lists in the order all members use.

        A member that *members* does not contain gets no queues. A rule that divides *queues*
        returns :func:`divided`.

        Raises:
            AllocationError: The member's name or one of the lists is empty; or the rule has its own
                reason, such as a queue in an unknown machine room.
        """


def allocate(
    strategy: AllocationStrategy,
    queues: Iterable[MessageQueue],
    members: Iterable[str],
    member: str,
) -> list[MessageQueue]:
    """Return the queues of *queues* that *member* should read until either list changes, sorted.

    The list is empty if there are no queues, if *members* does not contain *member*, or if the
    other members get all queues. Queues that a strategy returns beyond *queues* are dropped; a
    configured list may have such queues.

    Raises:
        AllocationError: The strategy's own reason; keep the current share.
    """
    all_queues = sorted(set(queues))
    all_members = sorted_members(members)
    if not all_queues or member not in all_members:
        return []
    share = set(strategy.share(all_queues, all_members, member))
    return [queue for queue in all_queues if queue in share]


def divided(queues: Sequence[MessageQueue], share: list[MessageQueue]) -> list[MessageQueue]:
    """Return *share*, a part of *queues*: it has no queue more often than *queues* does."""
    surplus = Counter(share) - Counter(queues)
    assert not surplus, f"more in the share than there is to divide: {surplus}"
    return share


def sorted_members(members: Iterable[str]) -> list[str]:
    """Return *members* without duplicates, in Java's order, by UTF-16 code unit.

    Python's order, by code point, differs only for characters beyond the basic plane.
    """
    return sorted(set(members), key=utf16_order)


def utf16_order(text: str) -> bytes:
    """Return the key that sorts texts as Java does."""
    return text.encode("utf-16-be", "surrogatepass")


def is_to_share(queues: Sequence[MessageQueue], members: Sequence[str], member: str) -> bool:
    """Check the arguments of a strategy; return whether *members* contains *member*.

    Raises:
        AllocationError: The member's name or a list is empty, checked in this order.
    """
    if not member:
        raise AllocationError(AllocationFault.MEMBER_EMPTY, "the member's own id is empty")
    if not queues:
        raise AllocationError(AllocationFault.QUEUES_EMPTY, "there are no queues to divide")
    if not members:
        raise AllocationError(AllocationFault.MEMBERS_EMPTY, "there are no members")
    return member in members
