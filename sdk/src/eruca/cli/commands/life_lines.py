"""``eruca timeline``: a message's history, and its state in each consumer group."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from eruca.cli.command import command
from eruca.cli.found_messages import place_text
from eruca.cli.session import Session
from eruca.cli.shown_messages import one_line, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eruca.contract.queries import GroupProgress, LifeEvent, Timeline

# The texts of an event's details, in the order in which they are shown.
_PHRASES: Final = {
    "outcome": "{}",
    "producer_group": "for {}",
    "group": "by {}",
    "number": "check {}",
    "check_number": "after check {}",
    "checks": "after {} checks",
    "checker": "by {}",
    "by": "by {}",
    "topic": "to {}",
    "attempt": "attempt {}",
    "attempts": "after {} attempts",
    "reason": "{}",
    "error": "{}",
    "deliver_at": "due at {}",
    "due_at": "again at {}",
    "visible_at": "until {}",
}
_PLAIN: Final = {"is_dead": "no more retries", "was_parked": "was parked"}
_ELSEWHERE: Final = frozenset(("origin_queue_id", "origin_offset", "queue_id"))
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "timeline")(timeline)


async def timeline(
    session: Session,
    *,
    message_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="A unique id from the send's result, or an offset id."),
    ],
) -> None:
    """Show a message's history: when it was stored, checked, retried, dead-lettered or redriven.

    It also shows each consumer group's state. An offset shows what a group has read, not the
    outcome. If something is unknown, the reason is shown.
    """
    async with session.client() as client:
        told = await client.query.timeline(message_id)
    if session.is_json:
        session.show_json(told)
        return
    from eruca.cli.found_messages import say_missing

    session.show_text(heading(told))
    session.show_text("")
    session.show_table(["at", "after", "event", "where", "on", "what"], event_rows(told.events))
    session.show_text("")
    if told.groups:
        session.show_table(
            ["group", "stands", "since", "where", "next offset", "what"],
            map(group_row, told.groups),
        )
    else:
        session.show_text("no consumer group is known to have received this message")
    say_missing(session, told.incomplete)


def heading(told: Timeline) -> str:
    """Return the message's id, tag and keys as a line."""
    if not told.places:
        return str(told.message_id)
    first = told.places[0]
    parts = [told.message_id or first.offset_message_id]
    if first.tag is not None:
        parts.append(f"tag {one_line(first.tag)}")
    if first.keys:
        parts.append(f"keys {one_line(' '.join(first.keys))}")
    return ", ".join(parts)


def event_rows(events: Sequence[LifeEvent]) -> Iterator[Sequence[object]]:
    """Yield each event as a row, with the time since the previous one."""
    before: datetime | None = None
    for event in events:
        yield (
            time_text(event.at),
            None if before is None else span_text(event.at - before),
            event.kind.replace("_", " "),
            place_text(event.topic, event.queue_id, event.queue_offset),
            event.broker_name,
            detail_text(event.detail) or None,
        )
        before = event.at


def group_row(progress: GroupProgress) -> Sequence[object]:
    """Return a group's state as a row."""
    return (
        progress.group,
        progress.state.replace("_", " "),
        None if progress.since is None else time_text(progress.since),
        place_text(progress.topic, progress.queue_id, progress.queue_offset),
        progress.next_offset,
        None if progress.detail is None else one_line(progress.detail),
    )


def detail_text(detail: Mapping[str, Any]) -> str:
    """Return an event's details as text; unknown details are shown by name."""
    told = {**detail, **_places(detail)}
    parts = [
        phrase.format(_value(told.pop(name)))
        for name, phrase in _PHRASES.items()
        if told.get(name) is not None
    ]
    if "origin_topic" in told:
        parts.append(f"from {_value(told.pop('origin_topic'))}")
    parts += [text for name, text in _PLAIN.items() if told.pop(name, None)]
    parts += [
        f"{name.replace('_', ' ')} {_value(value)}"
        for name, value in told.items()
        if value is not None and name not in _ELSEWHERE
    ]
    return ", ".join(parts)


def span_text(span: timedelta) -> str:
    """Return a span in its two largest units; below a second, in ms."""
    left = span // timedelta(milliseconds=1)
    sign, left = ("-", -left) if left < 0 else ("", left)
    if left < 1_000:
        return f"{sign}{left}ms"
    if left < 60_000:
        return f"{sign}{left // 100 / 10:.1f}s"
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + " ".join(parts[:2])


def _places(detail: Mapping[str, Any]) -> dict[str, str]:
    """Return the places in an event, each as one word."""
    found = {
        "topic": place_text(detail.get("topic"), detail.get("queue_id"), None),
        "origin_topic": place_text(
            detail.get("origin_topic"), detail.get("origin_queue_id"), detail.get("origin_offset")
        ),
    }
    return {name: text for name, text in found.items() if text is not None}


def _value(value: object) -> str:
    """Return a value on one line; times in the usual format."""
    text = str(value)
    try:
        return time_text(datetime.fromisoformat(text)) if _TIME.match(text) else one_line(text)
    except ValueError:
        return one_line(text)
