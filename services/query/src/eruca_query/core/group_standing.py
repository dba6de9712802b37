"""The state of consumer groups for one message: from positions, subscriptions, deliveries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from eruca.contract.instant_texts import instant_text
from eruca.contract.queries import GroupProgress, GroupState, LifeEventKind
from eruca.core.filters.tag_expression import TAG_TYPE, TagExpressionError, parse_tag_expression
from eruca_query.core.found_messages import FoundMessage, moment
from eruca_query.core.group_facts import (
    GroupFact,
    GroupGone,
    PositionMoved,
    SubscriptionsReplaced,
    TopicGone,
)
from eruca_query.core.life_events import LifeEvent

_DELIVERY_KINDS: Final = frozenset(
    (
        LifeEventKind.LEASED,
        LifeEventKind.EXTENDED,
        LifeEventKind.ACKED,
        LifeEventKind.NACKED,
        LifeEventKind.LEASE_EXPIRED,
    )
)
NO_POSITION: Final = (
    "it subscribes to the topic, but has committed no position here: it has not begun, or its "
    "members store their positions themselves"
)
NEXT: Final = "the group's next request redelivers it or moves it to the dead letters"
GIVEN_UP: Final = "its last delivery was not acknowledged in time, and it is not redelivered"
SQL_FILTER: Final = "it filters by properties, so it may have skipped the message"


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of one group in one message's queue."""

    next_offset: int | None = None
    since_ms: int | None = None  # when the position moved past the message
    set_at: int = 0  # log offset of the last reset, which ended all earlier deliveries
    filter: str | None = None  # of its subscription; None: it has no subscription
    filter_type: str = TAG_TYPE


@dataclass(slots=True)
class Standings:
    """The state of all groups that use the queue of one message."""

    message: FoundMessage
    groups: dict[str, Standing] = field(default_factory=dict)

    def put(self, group: str, **changes: object) -> None:
        """Set fields of a group's state."""
        self.groups[group] = replace(self.groups.get(group, Standing()), **changes)  # type: ignore[arg-type]  # fields by name

    def apply(self, facts: Iterable[GroupFact]) -> None:
        """Apply the facts of the log's tail."""
        for fact in facts:
            match fact:
                case PositionMoved() if fact.source != "snapshot":
                    self._move(fact)
                case SubscriptionsReplaced():
                    self._subscribe(fact)
                case GroupGone():
                    self.groups.pop(fact.group, None)
                case TopicGone() if fact.topic == self.message.topic:
                    self._forget_positions()
                case _:
                    continue

    def progress(self, events: Iterable[LifeEvent], *, now_ms: int) -> list[GroupProgress]:
        """Return the progress of each group, sorted by name.

        Args:
            events: The message's life events in its place, in the log's order. Deliveries to a
                group without a position there belong to a deleted group.
            now_ms: Needed since no record reports that a lease has expired.
        """
        last: dict[str, LifeEvent] = {}
        for event in events:
            if event.kind in _DELIVERY_KINDS:
                group = event.detail["group"]
                known = self.groups.get(group, Standing())
                if known.next_offset is not None and event.log_offset > known.set_at:
                    last[group] = event
        return [
            self._progress(group, self.groups[group], last.get(group), now_ms)
            for group in sorted(self.groups)
        ]

    def _forget_positions(self) -> None:
        """Forget all positions; subscriptions stay."""
        self.groups = {
            group: Standing(filter=known.filter, filter_type=known.filter_type)
            for group, known in self.groups.items()
            if known.filter is not None
        }

    def _move(self, moved: PositionMoved) -> None:
        if (moved.topic, moved.queue_id) != (self.message.topic, self.message.queue_id):
            return
        before = self.groups.get(moved.group, Standing())
        was_past = before.since_ms is not None
        is_past = moved.next_offset > self.message.queue_offset
        since = before.since_ms if was_past and is_past else moved.at_ms if is_past else None
        self.put(
            moved.group,
            next_offset=moved.next_offset,
            since_ms=since,
            set_at=before.set_at if moved.source == "deliveries" else moved.log_offset,
        )

    def _subscribe(self, fact: SubscriptionsReplaced) -> None:
        its = {topic: (text, kind) for topic, text, kind in fact.subscriptions}
        if self.message.topic in its:
            text, kind = its[self.message.topic]
            self.put(fact.group, filter=text, filter_type=kind)
        elif fact.is_whole and fact.group in self.groups:
            self.put(fact.group, filter=None)
            if self.groups[fact.group].next_offset is None:
                del self.groups[fact.group]

    def _progress(
        self, group: str, standing: Standing, last: LifeEvent | None, now_ms: int
    ) -> GroupProgress:
        state, since_ms, detail = _state(self.message, standing, last, now_ms)
        return GroupProgress(
            group=group,
            broker_name=self.message.broker_name,
            topic=self.message.topic,
            queue_id=self.message.queue_id,
            queue_offset=self.message.queue_offset,
            next_offset=standing.next_offset,
            state=state,
            since=None if since_ms is None else moment(since_ms),
            detail=detail,
        )


def delivered_to(events: Iterable[LifeEvent]) -> set[str]:
    """Return the groups to which *events* report deliveries."""
    return {event.detail["group"] for event in events if event.kind in _DELIVERY_KINDS}


def _state(
    message: FoundMessage, standing: Standing, last: LifeEvent | None, now_ms: int
) -> tuple[GroupState, int | None, str | None]:
    if last is not None and (told := _by_delivery(last, now_ms)) is not None:
        return told
    if standing.next_offset is None:
        return "unknown", None, NO_POSITION
    if standing.next_offset <= message.queue_offset:
        return "not_yet", None, None
    if _is_filtered(message, standing):
        return "filtered", standing.since_ms, f"its filter is {standing.filter}"
    is_sql = standing.filter is not None and not _is_by_tag(standing)
    return "past", standing.since_ms, SQL_FILTER if is_sql else None


def _by_delivery(last: LifeEvent, now_ms: int) -> tuple[GroupState, int | None, str | None] | None:
    match last.kind:
        case LifeEventKind.ACKED:
            return "done", last.at_ms, None
        case LifeEventKind.LEASED | LifeEventKind.EXTENDED:
            until_ms = last.detail["visible_at_ms"]
            if until_ms <= now_ms:
                return "not_yet", until_ms, f"its lease expired at {_shown(until_ms)}; {NEXT}"
            return "in_delivery", last.at_ms, f"leased until {_shown(until_ms)}"
        case LifeEventKind.LEASE_EXPIRED:
            return "done", last.at_ms, GIVEN_UP
        case _ if last.detail.get("is_dead"):
            return "done", last.at_ms, "its retries are exhausted: it is a dead letter"
        case _:
            return "not_yet", last.at_ms, "it was nacked, and is redelivered"


def _shown(ms: int) -> str:
    return instant_text(moment(ms))


def _is_by_tag(standing: Standing) -> bool:
    return standing.filter_type.upper() == TAG_TYPE


def _is_filtered(message: FoundMessage, standing: Standing) -> bool:
    if standing.filter is None or not _is_by_tag(standing):
        return False
    try:
        subscription = parse_tag_expression(standing.filter)
    except TagExpressionError:
        return False
    return not subscription.matches_tag(message.tag.decode("utf-8", "replace") or None)
