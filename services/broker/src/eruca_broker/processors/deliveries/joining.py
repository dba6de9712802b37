"""Settle a group's filter and initial offsets in a topic before its first delivery.

A group's deliveries of a topic have one filter, as its members do; the first use sets it.

A commit from outside may have set a position beyond a queue's end, and RocketMQ leaves one when it
loses its log's tail. Messages that arrive up to there would be skipped. So the group continues at
the queue's end, as a member does that finds nothing at its offset.

Source: RocketMQ 5.3, ``DefaultMessageStore.getMessage`` (``OFFSET_OVERFLOW_BADLY``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import structlog

from eruca.contract.deliveries import DeliveryRequest
from eruca.contract.errors import ConflictError, SubscriptionConflictError
from eruca_broker.core.state.events import Event
from eruca_broker.core.state.group_events import (
    CommittedOffset,
    GroupSubscribed,
    OffsetsCommitted,
    Subscribed,
)
from eruca_broker.core.state.group_state import Group, Queue
from eruca_broker.processors.groups.starts import Starts
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.topics import Topics

_NAMED_MEMBERS_MAX: Final = 5  # members that an error names

_log = structlog.get_logger()


class DeliveryJoining:
    """Determines the events to record first."""

    def __init__(self, work: GroupWork, topics: Topics) -> None:
        self._work = work
        self._topics = topics
        self._starts = Starts(work.store)

    def events(self, group: Group, request: DeliveryRequest) -> Iterator[Event]:
        """Yield the events to record before the group can receive messages of the topic.

        Raises:
            TopicNotFoundError: The topic no longer exists.
            ConflictError: The group is broadcasting.
            SubscriptionConflictError: It consumes the topic with another filter.
        """
        members = self._work.membership.members(group.name)
        for member in members:
            if member.beat is not None and member.beat.message_model == "broadcasting":
                raise ConflictError(
                    f"group {group.name!r} is broadcasting, as member {member.client_id!r} is",
                    fix="use another group",
                )
        wanted = Subscribed(request.topic, request.filter or "*", request.filter_type)
        known = {entry.topic: entry for entry in group.subscriptions}
        if known.get(wanted.topic) != wanted:
            is_shared = group.settings.subscription_mode == "shared"
            names = [member.client_id for member in members] if is_shared else []
            self._refuse_conflict(group, known.get(wanted.topic), wanted, names)
            known[wanted.topic] = wanted
            if out_of_reach := list(self._out_of_reach(group, wanted.topic)):
                yield OffsetsCommitted(group.name, out_of_reach)
            yield GroupSubscribed(group.name, tuple(known[topic] for topic in sorted(known)))
        topic = self._topics.get(request.topic)
        queues = [(topic.name, queue_id) for queue_id in range(topic.read_queue_count)]
        if any(group.position(queue) is None for queue in queues):
            now_ms = self._work.clock.now_ms()
            met = self._starts.of_topics(group, [topic.name], {}, now_ms=now_ms)
            if met is not None:
                yield met
        if ends := list(self._ends_before(group, queues)):
            yield OffsetsCommitted(group.name, ends)

    def _out_of_reach(self, group: Group, name: str) -> Iterator[CommittedOffset]:
        """Yield *group*'s positions in removed queues of the topic with unfinished messages.

        Nobody receives those messages again, so nobody can finish them. Recording the position
        again ends their leases. If the topic gets the queue again, they are redelivered if the
        filter lets them pass.
        """
        queue_count = self._topics.get(name).read_queue_count
        for (topic, queue_id), queue in self._work.store.state.leases.of_group(group.name):
            if topic == name and queue_id >= queue_count:
                yield CommittedOffset(topic, queue_id, queue.committed_offset)

    def _ends_before(self, group: Group, queues: Sequence[Queue]) -> Iterator[CommittedOffset]:
        """Yield the ends of those *queues* that end before the group's position."""
        for queue in queues:
            position, (_, end) = group.position(queue), self._work.store.queues.local_range(*queue)
            if position is not None and position > end and queue not in group.locks:
                _log.warning(
                    "a group's position was beyond a queue's end, and is the end now",
                    group=group.name,
                    topic=queue[0],
                    queue_id=queue[1],
                    position=position,
                    end=end,
                )
                yield CommittedOffset(*queue, end)

    def _refuse_conflict(
        self, group: Group, known: Subscribed | None, wanted: Subscribed, members: Sequence[str]
    ) -> None:
        """Raise an error if the group cannot use *wanted* instead of *known*, its filter."""
        leases = self._work.store.state.leases.of_group(group.name)
        queue_count = self._topics.get(wanted.topic).read_queue_count
        unfinished = sum(
            len(queue.unfinished)
            for (topic, queue_id), queue in leases
            if topic == wanted.topic and queue_id < queue_count
        )
        theirs = f"{known.filter_type} {known.filter!r}" if known else "none"
        difference = (
            f"topic {wanted.topic!r}: the group has {theirs}, the request "
            f"{wanted.filter_type} {wanted.filter!r}"
        )
        if members:
            shown = ", ".join(map(repr, members[:_NAMED_MEMBERS_MAX]))
            more = len(members) - _NAMED_MEMBERS_MAX
            raise SubscriptionConflictError(
                f"the request's filter differs from that of group {group.name!r}, with members "
                f"{shown}{f' and {more} more' if more > 0 else ''}: {difference}"
            )
        if known is not None and unfinished:
            raise SubscriptionConflictError(
                f"the request's filter differs from that of group {group.name!r}, in which "
                f"{unfinished} messages are unfinished: {difference}",
                fix="use the group's filter or another group, or finish all messages first",
            )
