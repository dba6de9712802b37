"""Who should read which queue: each member works it out for itself, from one view of the group.

The members of a group are known to many brokers, and brokers may differ for a moment. So each topic
has a **coordinator**, the broker with the smallest name in its route, whose list of members counts.
Route and list are the same for everyone, and the strategy is a pure function: so everyone comes to
the same result.

What *should* be read is not what *is* read: a member reads a queue only while it holds its lock.
Views that differ for a moment therefore cause a pause, never two readers.

Where each member is told which queues to read, nobody tells it of those of the group's retry topic,
which its brokers make. In RocketMQ nobody reads them then, and what a handler fails at never comes
again; here they are shared out evenly.

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
    """What a member knows of one topic."""

    topic: str
    queues: tuple[MessageQueue, ...]
    client_ids: tuple[str, ...] | None  # of the members that share them; None while not known


class Changes(NamedTuple):
    """The way from what is read to what should be."""

    to_acquire: frozenset[MessageQueue]
    to_give_up: frozenset[MessageQueue]


def coordinator_of(queues: Iterable[MessageQueue]) -> str | None:
    """Return the broker whose member list counts for a topic; None while it has no queues."""
    return min((queue.broker_name for queue in queues), default=None)


def share_of(
    strategy: AllocationStrategy,
    client_id: str,
    view: TopicView,
    current: Collection[MessageQueue],
) -> frozenset[MessageQueue]:
    """Return the queues of a topic that this member should read.

    Where the topic's members are not known, or this one is not among them yet, it stays with what
    it has.

    Raises:
        AllocationError: The strategy has no answer; stay with what you have.
    """
    if view.client_ids is None or client_id not in view.client_ids:
        return frozenset(queue for queue in current if queue.topic == view.topic)
    if isinstance(strategy, ByConfig) and view.topic.startswith(RETRY_TOPIC_PREFIX):
        strategy = Averagely()
    return frozenset(allocate(strategy, view.queues, view.client_ids, client_id))


def changes(should: Collection[MessageQueue], held: Collection[MessageQueue]) -> Changes:
    """Return what to acquire and what to give up."""
    return Changes(frozenset(should) - frozenset(held), frozenset(held) - frozenset(should))
