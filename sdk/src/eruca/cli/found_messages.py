"""Answers of the query service as the command line shows them, with notes on missing data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from eruca.cli.shown_messages import body_line, one_line, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eruca.cli.session import Session
    from eruca.contract.queries import Missing, StoredMessage, WholeMessage

PLACE_HEADINGS: Final = ("stored at", "in", "on", "offset id", "size")
MESSAGE_HEADINGS: Final = ("stored at", "in", "on", "message id", "tag", "keys", "size")
_NO_BODY: Final = {
    "retention": "retention has deleted its record",
    "broker_unreachable": "its broker does not answer",
    "not_asked": "it was not requested",
    "damaged": "its record in the broker's log is damaged",
}


def place_text(topic: str | None, queue_id: int | None, queue_offset: int | None) -> str | None:
    """Return a place in a queue as one word; None if there is none."""
    if topic is None:
        return None
    if queue_id is None:
        return topic
    return f"{topic}/{queue_id}" + ("" if queue_offset is None else f"@{queue_offset}")


def message_fields(message: WholeMessage) -> Iterator[tuple[str, object]]:
    """Yield a message's fields except its body, as names and values."""
    yield "message id", message.message_id
    yield "offset id", message.offset_message_id
    yield "in", place_text(message.topic, message.queue_id, message.queue_offset)
    yield "on", f"{message.broker_name}, log offset {message.log_offset}"
    yield "stored at", time_text(message.stored_at)
    yield "born at", time_text(message.born_at)
    yield "tag", None if message.tag is None else one_line(message.tag)
    yield "keys", _keys(message)
    yield "size", message.size
    if message.properties is not None:
        shown = (f"{name}={value}" for name, value in message.properties.items())
        yield "properties", one_line(", ".join(shown)) or None
        yield "sharding key", message.sharding_key and one_line(message.sharding_key)
        yield "retries", message.reconsume_times


def body_text(message: WholeMessage) -> str:
    """Return a message's body as text, or the reason why it is missing."""
    if message.body is None:
        return f"no body: {_NO_BODY[message.body_missing or 'not_asked']}"
    return body_line(message.body)


def message_row(message: WholeMessage, *, bodies: bool) -> Sequence[object]:
    """Return a message as a row under ``MESSAGE_HEADINGS``, then its body if *bodies*."""
    row = (
        time_text(message.stored_at),
        place_text(message.topic, message.queue_id, message.queue_offset),
        message.broker_name,
        message.message_id or message.offset_message_id,
        None if message.tag is None else one_line(message.tag),
        _keys(message),
        message.size,
    )
    return (*row, one_line(body_text(message))) if bodies else row


def place_row(place: StoredMessage) -> Sequence[object]:
    """Return a place as a row under ``PLACE_HEADINGS``."""
    return (
        time_text(place.stored_at),
        place_text(place.topic, place.queue_id, place.queue_offset),
        place.broker_name,
        place.offset_message_id,
        place.size,
    )


def missing_line(missing: Missing) -> str:
    """Return what may be missing from an answer, and why, as a line."""
    of = "" if missing.broker_name is None else f" of {missing.broker_name}"
    return f"messages{of} may be missing: {one_line(missing.detail)}"


def say_missing(session: Session, incomplete: Sequence[Missing]) -> None:
    """Report to stderr what may be missing from an answer."""
    if not session.is_json:  # the JSON document contains it
        for missing in incomplete:
            session.say(missing_line(missing))


def _keys(message: WholeMessage) -> str | None:
    return one_line(" ".join(message.keys)) or None
