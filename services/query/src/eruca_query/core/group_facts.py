"""Group facts: the changes to consumer groups, and deleted topics, that control records report.

Facts are in the log's order; later ones override earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from eruca.contract.records import Record
from eruca_query.core import control_records as control

PositionSource = Literal["committed", "reset", "start", "deliveries", "snapshot"]
"""``start``: the group began here; ``deliveries``: messages were leased up to here;
``snapshot``: the group was here at the beginning of the log's oldest remaining part."""


class PositionMoved(NamedTuple):
    """A group's next offset in a queue, as committed, reset or first resolved."""

    log_offset: int
    at_ms: int
    group: str
    topic: str
    queue_id: int
    next_offset: int
    source: PositionSource


class SubscriptionsReplaced(NamedTuple):
    """A group's subscriptions: topic, filter, filter type."""

    group: str
    subscriptions: tuple[tuple[str, str, str], ...]
    is_whole: bool = True  # false: the group may have more


class GroupGone(NamedTuple):
    """A group was deleted."""

    group: str


class TopicGone(NamedTuple):
    """A topic was deleted, with all its messages before this log offset."""

    topic: str
    log_offset: int


GroupFact: TypeAlias = PositionMoved | SubscriptionsReplaced | GroupGone | TopicGone


def group_facts_of(told: control.Control, record: Record) -> Iterator[GroupFact]:
    """Yield the facts about groups and topics that a control record reports."""

    def moved(
        group: str, positions: Iterable[control.Position], source: PositionSource
    ) -> Iterator[PositionMoved]:
        for topic, queue_id, offset in ((p.topic, p.queue_id, p.offset) for p in positions):
            yield PositionMoved(
                record.log_offset, record.store_timestamp, group, topic, queue_id, offset, source
            )

    match told:
        case control.OffsetsCommitted() | control.LocksReleased():
            yield from moved(told.group, told.offsets, "committed")
        case control.OffsetsReset():
            yield from moved(told.group, told.offsets, "reset")
        case control.StartsResolved():
            for met in told.topics:
                starts = (control.Position(met.topic, s.queue_id, s.offset) for s in met.starts)
                yield from moved(told.group, starts, "start")
        case control.DeliveriesLeased():
            position = control.Position(told.topic, told.queue_id, told.position)
            yield from moved(told.group, [position], "deliveries")
        case control.GroupSubscribed():
            subscriptions = ((s.topic, s.filter, s.filter_type) for s in told.subscriptions)
            yield SubscriptionsReplaced(told.group, tuple(subscriptions))
        case control.GroupDeleted():
            yield GroupGone(told.group)
        case control.TopicDeleted():
            yield TopicGone(told.topic, record.log_offset)
        case control.Snapshot():
            for group in told.groups:
                yield from moved(group.group, group.offsets, "snapshot")
            for item in told.subscriptions:
                s = item.subscription
                its = ((s.topic, s.filter, s.filter_type),)
                yield SubscriptionsReplaced(item.group, its, is_whole=False)
        case _:
            return
