"""The view of the search for messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from eruca.contract.errors import ValidationError
from eruca.contract.names import is_derived_topic
from eruca.contract.queries import Missing, ReadModelPosition, StoredMessage
from eruca_console.cluster.outcomes import Outcome, outcome
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.texts import N_
from eruca_console.core.times import typed_time
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

FIELDS: Final = ("id", "topic", "key", "tag", "since", "until")
PAGE_SIZE: Final = 50
CHOICES_MAX: Final = 1_000  # topics that the form offers


async def view(visit: Visit) -> Shown:
    """Return the messages that match, newest first.

    Raises:
        ValidationError: A parameter is unknown or invalid.
    """
    check_parameters(visit.query, (*FIELDS, "cursor", "format"))
    given = {name: visit.query.get(name, "").strip() for name in FIELDS}
    topics, found = await asyncio.gather(outcome(visit.reading.topics()), _found(visit, given))
    if visit.wants_file and found is not None:
        found.check()
    offered = topics.value.value if topics.value is not None else {}
    kept = {name: value for name, value in given.items() if value}
    cursor = None if found is None or found.value is None else found.value["next_cursor"]
    values: dict[str, Any] = {
        "given": given,
        "offered": [name for name in offered if not is_derived_topic(name)][:CHOICES_MAX],
        "found": found,
        "has_cursor": bool(visit.query.get("cursor")),
        "first_url": f"/messages?{urlencode(kept)}",
        "next_url": f"/messages?{urlencode({**kept, 'cursor': cursor})}" if cursor else None,
        "file_url": f"/messages?{urlencode({**kept, 'format': 'csv'})}",
    }
    messages: Sequence[StoredMessage] = (
        found.value["messages"] if found is not None and found.value is not None else ()
    )
    table = CsvTable(
        f"messages-of-{given['topic'] or given['id'] or 'nothing'}",
        (
            *("message_id", "offset_message_id", "topic", "broker", "queue", "offset"),
            *("stored_at", "born_at", "tag", "keys", "bytes"),
        ),
        [
            (
                *(one.message_id, one.offset_message_id, one.topic, one.broker_name),
                *(one.queue_id, one.queue_offset, one.stored_at, one.born_at, one.tag),
                *(" ".join(one.keys), one.size),
            )
            for one in messages
        ],
        is_whole=found is None
        or found.value is None
        or not (found.value["incomplete"] or found.value["next_cursor"]),
    )
    return Shown(N_("Messages"), values, await _recipe(visit, given), table)


async def _found(visit: Visit, given: Mapping[str, str]) -> Outcome[dict[str, Any]] | None:
    """Return the messages and what the answer may lack; None: nothing was searched for."""
    reading = visit.reading
    since, until = typed_time(given["since"], "since"), typed_time(given["until"], "until")
    if given["id"]:
        one = await outcome(reading.message(given["id"]))
        if one.value is None:
            return Outcome(error=one.error)
        return Outcome(
            _answer(
                [one.value.message, *one.value.also_stored],
                one.value.read_model,
                one.value.incomplete,
            ),
            one.at,
        )
    if not given["topic"]:
        if any(given.values()):
            raise ValidationError("query.topic: required", fix="choose a topic")
        return None
    page = await outcome(
        reading.messages(
            given["topic"],
            key=given["key"] or None,
            tag=given["tag"] or None,
            since=since,
            until=until,
            limit=PAGE_SIZE,
            cursor=visit.query.get("cursor") or None,
        )
    )
    if page.value is None:
        return Outcome(error=page.error)
    answer = page.value
    shown = _answer(answer.messages, answer.read_model, answer.incomplete, answer.next_cursor)
    return Outcome(shown, page.at)


def _answer(
    messages: Sequence[StoredMessage],
    read_model: Sequence[ReadModelPosition],
    incomplete: Sequence[Missing],
    next_cursor: str | None = None,
) -> dict[str, Any]:
    return {
        "messages": messages,
        "names": [one.broker_name for one in read_model if one.end_offset is not None],
        "incomplete": incomplete,
        "next_cursor": next_cursor,
    }


async def _recipe(visit: Visit, given: Mapping[str, str]) -> recipes.Recipe:
    query = await visit.reading.query_url()
    if given["id"]:
        return recipes.Recipe(
            recipes.curl(f"{query}/v1/messages/{given['id']}", has_key=visit.has_key),
            recipes.python(
                visit.namesrv_urls, f"print(client.query.message({given['id']!r}).message)"
            ),
            recipes.cli("query", "id", given["id"]),
        )
    topic = given["topic"] or "TOPIC"
    asked = {name: given[name] for name in ("key", "tag") if given[name]}
    words = "".join(f", {name}={value!r}" for name, value in asked.items())
    return recipes.Recipe(
        recipes.curl(
            f"{query}/v1/messages?{urlencode({'topic': topic, **asked})}", has_key=visit.has_key
        ),
        recipes.python(
            visit.namesrv_urls,
            f"for message in client.query.find({topic!r}{words}).messages:",
            "    print(message.stored_at, message.message_id, message.keys)",
        ),
        recipes.cli("query", "key", topic, given["key"]) if given["key"] else "",
    )


PAGE: Final = Page("messages", "/messages", "messages", view)
