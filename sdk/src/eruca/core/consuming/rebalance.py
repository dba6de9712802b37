"""Rebalance: each member computes by itself, from one view of the group, the queues to read.

Many brokers know the members of a group, and their lists may differ for a moment. So each topic has
a **coordinator**, the broker with the smallest name in its route; its list of members is the valid
one. Route and list are the same for all members, and the strategy is a pure function. So all
members get the same result.

A member reads a queue only while it holds its lock. So members whose views differ for a moment
cause a pause, never two readers.

A configured allocation does not name the queues of the group's retry topic, which brokers create.
In RocketMQ no member reads them then, so failed messages are never retried. Here the members divide
them evenly.

Source: RocketMQ 5.3, ``RebalanceImpl``; there the list comes from a broker chosen at random.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from eruca.contract.names import RETRY_TOPIC_PREFIX
from eruca.core.allocation import AllocationStrategy, Averagely, ByConfig, allocate
from eruca.core.messages.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class TopicView:
    """A member's view of one topic."""

    topic: str
    queues: tuple[MessageQueue, ...]
    client_ids: tuple[str, ...] | None  # of the members that divide them; None while unknown


class Changes(NamedTuple):
    """The difference between the queues that are read and those that should be."""

    to_acquire: frozenset[MessageQueue]
    to_give_up: frozenset[MessageQueue]


def coordinator_of(queues: Iterable[MessageQueue]) -> str | None:
    """Return the broker whose member list is valid for a topic; None while it has no queues."""
    return min((queue.broker_name for queue in queues), default=None)


def share_of(
    strategy: AllocationStrategy,
    client_id: str,
    view: TopicView,
    current: Collection[MessageQueue],
) -> frozenset[MessageQueue]:
    """Return the queues of a topic that this member should read.

    If the topic's members are unknown, or do not include this one yet, it keeps its queues.

    Raises:
        AllocationError: The strategy cannot compute a share; keep the current one.
    """
    if view.client_ids is None or client_id not in view.client_ids:
        return frozenset(queue for queue in current if queue.topic == view.topic)
    if isinstance(strategy, ByConfig) and view.topic.startswith(RETRY_TOPIC_PREFIX):
        strategy = Averagely()
    return frozenset(allocate(strategy, view.queues, view.client_ids, client_id))


def changes(should: Collection[MessageQueue], held: Collection[MessageQueue]) -> Changes:
    """Return the queues to acquire and the queues to release."""
    return Changes(frozenset(should) - frozenset(held), frozenset(held) - frozenset(should))
