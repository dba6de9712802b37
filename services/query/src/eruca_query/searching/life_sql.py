"""Read the life events of messages, and the state of groups, from the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Select, func, select, text, tuple_

from eruca.contract.limits import LIST_LIMIT_MAX
from eruca.contract.queries import LifeEventKind
from eruca_query.core.found_messages import FoundMessage
from eruca_query.core.group_standing import Standings
from eruca_query.core.life_events import LifeEvent, Place
from eruca_query.core.unique_ids import stored_id
from eruca_query.projection.tables import (
    NO_ID,
    commits,
    group_positions,
    life_events,
    names,
    subscriptions,
)
from eruca_query.searching.message_sql import CHUNKS_MAX
from eruca_query.searching.read_view import ReadView

GROUPS_MAX: Final = 200  # groups for which the time of passing a message is looked up
PLACES_MAX: Final = 64  # of one message: it may have been redelivered many times
EVENTS_MAX: Final = LIST_LIMIT_MAX  # of one message: a client may give one id to all its messages


async def events_of(
    view: ReadView, unique_id: str | None, places: Sequence[FoundMessage]
) -> list[tuple[str, LifeEvent]]:
    """Return the life events of a message, each with the broker that reports it, unordered.

    Of events found by the id alone, return at most one more than fits into an answer.

    Args:
        view: The rows.
        unique_id: The message's unique id.
        places: Its places, according to the rows.
    """
    chunks = sorted((span.chunk for span in await view.spans()), reverse=True)
    numbers = await view.numbers.known(view.connection, {place.topic for place in places})
    statements: list[Select[Any]] = []
    if unique_id is not None:
        code, other = stored_id(unique_id.encode("utf-8", "surrogatepass"))
        statements.append(
            select(life_events)
            .where(
                life_events.c.unique_id == UUID(bytes=code),
                life_events.c.unique_id != text(NO_ID),  # so that the partial index is used
                life_events.c.other_id == other,
            )
            .order_by(life_events.c.at_ms, life_events.c.broker_no, life_events.c.log_offset)
            .limit(EVENTS_MAX + 1)
        )
    if places:
        at = life_events.c
        own = [
            (
                view.by_name[place.broker_name].broker_no,
                numbers[place.topic],
                place.queue_id,
                place.queue_offset,
            )
            for place in places
            if place.topic in numbers  # system topics have no rows
        ]
        waited = [(view.by_name[p.broker_name].broker_no, p.log_offset) for p in places]
        statements += [
            select(life_events).where(
                tuple_(at.broker_no, at.topic_no, at.queue_id, at.queue_offset).in_(own)
            ),
            select(life_events).where(tuple_(at.broker_no, at.waited_at).in_(waited)),
        ]
    rows: list[Any] = []
    for first in range(0, len(chunks), CHUNKS_MAX):
        some = life_events.c.chunk.in_(chunks[first : first + CHUNKS_MAX])
        for statement in statements:
            rows += await view.connection.execute(statement.where(some))
    topics = await view.names_of(row.topic_no for row in rows if row.topic_no is not None)
    return [(view.by_number[row.broker_no].broker_name, _event(row, topics)) for row in rows]


def _event(row: Any, topics: dict[int, str]) -> LifeEvent:  # noqa: ANN401  # a row
    place = None
    if row.topic_no is not None:
        place = Place(topics[row.topic_no], row.queue_id, row.queue_offset)
    return LifeEvent(
        row.log_offset,
        row.at_ms,
        LifeEventKind(row.kind),
        row.detail,
        place=place,
        waited_at=row.waited_at,
    )


async def standings_of(
    view: ReadView, message: FoundMessage, *, delivered_to: Collection[str] = ()
) -> Standings:
    """Return the groups that use a message's queue, according to the rows.

    Args:
        view: The rows.
        message: The message in the queue.
        delivered_to: Groups to which it was delivered, according to the rows.
    """
    standings = Standings(message)
    its = view.by_name[message.broker_name]
    topic_no = await view.topic_number(message.topic)
    own = {"broker_no": its.broker_no, "build": its.build, "topic_no": topic_no}
    for row in await view.connection.execute(
        select(names.c.name, subscriptions.c.filter, subscriptions.c.filter_type)
        .join(subscriptions, subscriptions.c.group_no == names.c.name_no)
        .where(*(subscriptions.c[name] == value for name, value in own.items()))
    ):
        standings.put(row.name, filter=row.filter, filter_type=row.filter_type)
    found = await view.connection.execute(
        select(names.c.name, group_positions)
        .join(group_positions, group_positions.c.group_no == names.c.name_no)
        .where(
            *(group_positions.c[name] == value for name, value in own.items()),
            group_positions.c.queue_id == message.queue_id,
        )
        .order_by(names.c.name)
    )
    rows = list(found)
    for row in rows:
        standings.put(row.name, next_offset=row.next_offset)
    past = {row.group_no: row.name for row in rows if row.next_offset > message.queue_offset}
    spans = await view.spans(broker_no=its.broker_no)
    in_queue = (
        commits.c.chunk.in_([span.chunk for span in spans if span.last_ms >= message.stored_ms]),
        commits.c.topic_no == topic_no,
        commits.c.queue_id == message.queue_id,
    )
    since = await _since(view, message, in_queue, list(past)[:GROUPS_MAX])
    for group_no, since_ms in since.items():
        standings.put(past[group_no], since_ms=since_ms)
    delivered = {row.group_no: row.name for row in rows if row.name in delivered_to}
    for group_no, set_at in (await _set_at(view, in_queue, delivered)).items():
        standings.put(delivered[group_no], set_at=set_at)
    return standings


async def _since(
    view: ReadView,
    message: FoundMessage,
    in_queue: Sequence[ColumnElement[bool]],
    groups: Iterable[int],
) -> dict[int, int]:
    """Return the time at which each group moved past a message for the last time."""
    since: dict[int, int] = {}
    for group_no in groups:
        own = (*in_queue, commits.c.group_no == group_no)
        went_back_at = await view.connection.scalar(
            select(func.max(commits.c.log_offset)).where(
                *own, commits.c.is_back, commits.c.next_offset <= message.queue_offset
            )
        )
        at_ms = await view.connection.scalar(
            select(commits.c.at_ms)
            .where(
                *own,
                commits.c.next_offset > message.queue_offset,
                commits.c.log_offset > max(went_back_at or 0, message.log_offset),
            )
            .order_by(commits.c.log_offset)
            .limit(1)
        )
        if at_ms is not None:
            since[group_no] = at_ms
    return since


async def _set_at(
    view: ReadView, in_queue: Sequence[ColumnElement[bool]], groups: Collection[int]
) -> dict[int, int]:
    """Return the log offset of each group's last change of position other than by deliveries."""
    if not groups:
        return {}
    found = await view.connection.execute(
        select(commits.c.group_no, func.max(commits.c.log_offset).label("set_at"))
        .where(*in_queue, commits.c.group_no.in_(groups))
        .group_by(commits.c.group_no)
    )
    return {row.group_no: row.set_at for row in found}
