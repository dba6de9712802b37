"""Timelines: all known events in the life of a message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eruca.contract.fields import OFFSET_MAX
from eruca.contract.queries import LifeEvent as ShownEvent
from eruca.contract.queries import LifeEventKind, Missing, Timeline
from eruca_chassis.clock import Clock
from eruca_postgres.database import Database
from eruca_query.core.found_messages import FoundMessage, Position, moment
from eruca_query.core.group_standing import Standings, delivered_to
from eruca_query.core.life_events import LifeEvent, Place, id_bytes
from eruca_query.core.log_facts import ROWLESS_TOPICS
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.searching.broker_logs import BrokerLogs, TailAnswer
from eruca_query.searching.completeness import completeness_of, damaged_records, positions_of
from eruca_query.searching.life_sql import EVENTS_MAX, PLACES_MAX, events_of, standings_of
from eruca_query.searching.message_search import (
    MessageSearch,
    in_tails,
    may_have_id,
    not_found,
    rows_by_id,
)
from eruca_query.searching.read_view import ReadView, read_view

_MS_SUFFIX: Final = "_ms"


class _Told(NamedTuple):
    """An event and the broker whose log reports it."""

    broker_name: str
    event: LifeEvent


class _Lain(NamedTuple):
    """A message in its place, and the log offset at which its topic was deleted, if it was."""

    place: FoundMessage
    until: int | None


class Timelines:
    """Builds messages' timelines.

    Args:
        database: The read model's.
        numbers: The numbers of names; shared with the projection.
        logs: Reads from the brokers.
        search: Finds the messages.
        clock: Tells whether a lease has expired.
    """

    def __init__(
        self,
        database: Database,
        numbers: NameNumbers,
        logs: BrokerLogs,
        search: MessageSearch,
        clock: Clock,
    ) -> None:
        self._database = database
        self._numbers = numbers
        self._logs = logs
        self._search = search
        self._clock = clock

    async def of(self, message_id: str) -> Timeline:
        """Return the timeline of the message with an offset id or a unique id.

        Raises:
            MessageNotFoundError: No broker has it.
            SearchIncompleteError: It was not found, and something could not be searched.
        """
        known = await self._logs.brokers()
        named, fault = await self._search.by_offset_id(message_id, known)
        unique_id = message_id if named is None else named.message.unique_id
        own = [] if named is None else [named.message]
        async with read_view(self._database, self._numbers) as view:
            rows = await rows_by_id(view, unique_id, PLACES_MAX + 1)
            in_rows = _places([*rows, *own])
            its_rows = [
                place
                for place in in_rows[:PLACES_MAX]
                if (its := view.by_name.get(place.broker_name)) is not None
                and place.log_offset < its.log_offset
            ]
            told = [_Told(*told) for told in await events_of(view, unique_id, its_rows)]
            standings = {
                place.position: await standings_of(
                    view, place, delivered_to=delivered_to(_in_place(place, told))
                )
                for place in its_rows
                if place.is_users
            }
            ends = {topic: await _ends_in_rows(view, topic) for topic in {p.topic for p in in_rows}}
            damaged = await view.damaged()
            serving, positions = view.by_name, positions_of(view, known)
        tails = await self._logs.tails(positions)
        completeness = completeness_of(serving, known, tails)
        completeness.add_damaged(
            damaged_records(
                damaged,
                tails,
                # Control records report events of a message, too.
                lambda record: may_have_id(record, unique_id) or record.topic in ROWLESS_TOPICS,
            )
        )
        if fault is not None:
            completeness.add(fault)
        behind = [] if unique_id is None else in_tails(unique_id, tails)
        if unique_id is not None and not (in_rows or behind):
            behind = await self._search.in_indexes(unique_id, tails)
        places = _places([*in_rows, *behind])
        if len(places) > PLACES_MAX:
            detail = f"it is in more than {PLACES_MAX} places; the first ones are shown"
            completeness.add(Missing(broker_name=None, reason="too_many", detail=detail))
            places = places[:PLACES_MAX]
        standings |= await self._standings_in_tails(places, in_rows=its_rows)
        lain = _lain(places, ends, tails)
        told = _while_there(lain, [*told, *_told_by_tails(unique_id, places, tails)])
        completeness.add_damage(tails)
        if not places and not told:
            raise not_found(message_id, completeness)
        for place, until in lain:
            if until is not None:
                standings.pop(place.position, None)  # the groups use the topic that exists now
            elif place.is_users:
                answer = tails.get(place.broker_name)
                standing = standings.setdefault(place.position, Standings(place))
                if answer is not None and answer.tail is not None:
                    standing.apply(answer.tail.group_facts())
        events = _in_order(places, told)
        if len(events) > EVENTS_MAX:
            detail = f"it has more than {EVENTS_MAX} events; the first ones are shown"
            completeness.add(Missing(broker_name=None, reason="too_many", detail=detail))
        now_ms = self._clock.now_ms()
        return Timeline(
            message_id=unique_id,
            places=[place.shown() for place in places],
            events=[_shown_event(*its) for its in events[:EVENTS_MAX]],
            groups=[
                progress
                for its in standings.values()
                for progress in its.progress(_in_place(its.message, told), now_ms=now_ms)
            ],
            read_model=completeness.read_model,
            incomplete=completeness.missing,
        )

    async def _standings_in_tails(
        self, places: Iterable[FoundMessage], *, in_rows: Iterable[FoundMessage]
    ) -> dict[Position, Standings]:
        """Return the state of groups in the queues of messages that only the tails have.

        The rows may have advanced since the tails were read. The tails' facts are applied on top:
        either they reach as far as the rows, or the rows contain newer facts as well.
        """
        known = {place.position for place in in_rows}
        new = [place for place in places if place.is_users and place.position not in known]
        if not new:
            return {}
        async with read_view(self._database, self._numbers) as view:
            return {
                place.position: await standings_of(view, place)
                for place in new
                if place.broker_name in view.by_name
            }


def _places(found: Iterable[FoundMessage]) -> list[FoundMessage]:
    """Return each place once, the oldest first."""
    by_position = {message.position: message for message in found}
    return [by_position[position] for position in sorted(by_position)]


async def _ends_in_rows(view: ReadView, topic: str) -> dict[str, int]:
    """Return the log offset at which a topic was deleted, by broker name."""
    topic_no = await view.topic_number(topic)
    if topic_no is None:  # system topics have no rows
        return {}
    ends = await view.ends_of_topic(topic_no)
    return {view.by_number[broker_no].broker_name: end for broker_no, end in ends.items()}


def _lain(
    places: Sequence[FoundMessage],
    ends: Mapping[str, Mapping[str, int]],
    tails: Mapping[str, TailAnswer],
) -> list[_Lain]:
    """Return until when messages were in *places*; *ends* are the rows', by topic and broker."""
    lain = []
    for place in places:
        answer = tails.get(place.broker_name)
        told = [ends.get(place.topic, {}).get(place.broker_name)]
        if answer is not None and answer.tail is not None:
            told.append(answer.tail.end_of_topic(place.topic))
        later = [end for end in told if end is not None and end > place.log_offset]
        lain.append(_Lain(place, min(later, default=None)))
    return lain


def _while_there(lain: Iterable[_Lain], told: Iterable[_Told]) -> list[_Told]:
    """Drop the events of other messages in the same places.

    A topic that is deleted and created again starts at offset 0 again.
    """
    stretches: dict[tuple[str, Place | None], list[tuple[int, int]]] = {}
    for place, until in lain:
        lies_at = Place(place.topic, place.queue_id, place.queue_offset)
        stretch = (place.log_offset, OFFSET_MAX if until is None else until)
        stretches.setdefault((place.broker_name, lies_at), []).append(stretch)
    return [
        its
        for its in told
        if (own := stretches.get((its.broker_name, its.event.place))) is None
        or any(begin <= its.event.log_offset < end for begin, end in own)
    ]


def _told_by_tails(
    unique_id: str | None, places: Sequence[FoundMessage], tails: Mapping[str, TailAnswer]
) -> list[_Told]:
    wanted = None if unique_id is None else id_bytes(unique_id)
    told = []
    for name, answer in tails.items():
        if answer.tail is None:
            continue
        own = [place for place in places if place.broker_name == name]
        lies_at = {Place(p.topic, p.queue_id, p.queue_offset) for p in own}
        waited_at = {place.log_offset for place in own}
        told += [
            _Told(name, event)
            for event in answer.tail.events()
            if (wanted is not None and event.unique_id == wanted)
            or event.place in lies_at
            or event.waited_at in waited_at
        ]
    return told


def _in_place(message: FoundMessage, told: Iterable[_Told]) -> list[LifeEvent]:
    """Return the events of a message in its place, in the log's order."""
    place = Place(message.topic, message.queue_id, message.queue_offset)
    events = [
        its.event
        for its in told
        if its.broker_name == message.broker_name and its.event.place == place
    ]
    return sorted(events, key=lambda event: event.log_offset)


def _in_order(places: Sequence[FoundMessage], told: Iterable[_Told]) -> list[_Told]:
    """Return the events of a message, including its storing, each event once."""
    stored = [
        _Told(
            place.broker_name,
            LifeEvent(
                place.log_offset,
                place.stored_ms,
                LifeEventKind.STORED,
                {},
                place=Place(place.topic, place.queue_id, place.queue_offset),
            ),
        )
        for place in places
        if place.is_users
    ]
    # An event may be found both by the id and by the place.
    events = {
        (
            its.event.at_ms,
            its.broker_name,
            its.event.log_offset,
            its.event.kind,
            its.event.place,
            its.event.waited_at,
        ): its
        for its in (*stored, *told)
    }
    return sorted(
        events.values(), key=lambda its: (its.event.at_ms, its.broker_name, its.event.log_offset)
    )


def _shown_event(broker_name: str, event: LifeEvent) -> ShownEvent:
    place = event.place
    return ShownEvent(
        at=moment(event.at_ms),
        kind=event.kind,
        broker_name=broker_name,
        log_offset=event.log_offset,
        topic=None if place is None else place.topic,
        queue_id=None if place is None else place.queue_id,
        queue_offset=None if place is None else place.queue_offset,
        detail=dict(_with_times(event.detail)),
    )


def _with_times(detail: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in detail.items():
        if name.endswith(_MS_SUFFIX) and isinstance(value, int):
            yield name.removesuffix(_MS_SUFFIX), moment(value)
        else:
            yield name, value
