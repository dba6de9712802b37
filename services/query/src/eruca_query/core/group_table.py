"""One broker's groups: their positions and subscriptions, changed by facts of the log.

The table mirrors rows: :meth:`GroupTable.apply` returns the changes to write to the rows. Applied
facts cannot be undone; after a failed write, read the table from the rows again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from eruca_query.core.group_facts import (
    GroupFact,
    GroupGone,
    PositionMoved,
    SubscriptionsReplaced,
    TopicGone,
)

Queue: TypeAlias = tuple[str, int]
Subscriptions: TypeAlias = dict[str, tuple[str, str]]  # by topic: filter, and its kind


class _Stand(NamedTuple):
    """A group's position in a queue."""

    next_offset: int
    is_handed_out: bool  # set by deliveries, until the group commits a position itself


class Commit(NamedTuple):
    """A position that was set, and whether it moved backwards."""

    moved: PositionMoved
    is_back: bool


@dataclass(slots=True)
class GroupChanges:
    """Changes to write: first deletions, then the current rows."""

    gone_groups: set[str] = field(default_factory=set)
    gone_topics: dict[str, int] = field(default_factory=dict)  # log offset of each one's deletion
    positions: dict[tuple[str, Queue], PositionMoved] = field(default_factory=dict)
    subscriptions: dict[str, Subscriptions] = field(default_factory=dict)  # by group, complete
    commits: list[Commit] = field(default_factory=list)

    def names(self) -> set[str]:
        """Return the name of every group and topic in the changes."""
        found = self.gone_groups | self.gone_topics.keys() | self.subscriptions.keys()
        for group, (topic, _) in self.positions:
            found |= {group, topic}
        for commit in self.commits:
            found |= {commit.moved.group, commit.moved.topic}
        for its in self.subscriptions.values():
            found |= its.keys()
        return found


class GroupTable:
    """Positions and subscriptions, by group."""

    def __init__(self) -> None:
        self._positions: dict[str, dict[Queue, _Stand]] = {}
        self._subscriptions: dict[str, Subscriptions] = {}

    def put_position(self, group: str, queue: Queue, next_offset: int, source: str) -> None:
        """Take over a row of positions."""
        stand = _Stand(next_offset, source == "deliveries")
        self._positions.setdefault(group, {})[queue] = stand

    def put_subscription(self, group: str, topic: str, filter_text: str, filter_type: str) -> None:
        """Take over a row of subscriptions."""
        self._subscriptions.setdefault(group, {})[topic] = (filter_text, filter_type)

    def apply(self, facts: Iterable[GroupFact]) -> GroupChanges:
        """Change the table by *facts*, in their order, and return the changes to write."""
        changes = GroupChanges()
        for fact in facts:
            match fact:
                case PositionMoved():
                    self._move(fact, changes)
                case SubscriptionsReplaced():
                    self._subscribe(fact, changes)
                case GroupGone():
                    self._end_group(fact.group, changes)
                case TopicGone():
                    self._end_topic(fact, changes)
        return changes

    def _move(self, moved: PositionMoved, changes: GroupChanges) -> None:
        queue = (moved.topic, moved.queue_id)
        its = self._positions.setdefault(moved.group, {})
        before = its.get(queue)
        if moved.source == "snapshot" and before is not None:
            return  # it changes nothing
        its[queue] = now = _Stand(moved.next_offset, moved.source == "deliveries")
        changes.positions[moved.group, queue] = moved
        if moved.source not in ("snapshot", "deliveries") and before != now:
            is_back = before is not None and moved.next_offset < before.next_offset
            changes.commits.append(Commit(moved, is_back))

    def _subscribe(self, fact: SubscriptionsReplaced, changes: GroupChanges) -> None:
        its = {} if fact.is_whole else dict(self._subscriptions.get(fact.group, {}))
        before = self._subscriptions.get(fact.group)
        its.update({topic: (text, kind) for topic, text, kind in fact.subscriptions})
        if its != before:
            self._subscriptions[fact.group] = its
            changes.subscriptions[fact.group] = its

    def _end_group(self, group: str, changes: GroupChanges) -> None:
        self._positions.pop(group, None)
        self._subscriptions.pop(group, None)
        changes.gone_groups.add(group)
        changes.subscriptions.pop(group, None)
        for key in [key for key in changes.positions if key[0] == group]:
            del changes.positions[key]

    def _end_topic(self, fact: TopicGone, changes: GroupChanges) -> None:
        for its in self._positions.values():
            for queue in [queue for queue in its if queue[0] == fact.topic]:
                del its[queue]
        changes.gone_topics[fact.topic] = fact.log_offset
        for key in [key for key in changes.positions if key[1][0] == fact.topic]:
            del changes.positions[key]
