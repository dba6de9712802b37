"""The form of a message, and the act that sends it to its topic."""

from __future__ import annotations

from typing import Any, Final

from eruca import Message
from eruca_console.cluster.outcomes import outcome
from eruca_console.cluster.readers import receivers_of
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.texts import N_
from eruca_console.shell.forms import text_of
from eruca_console.shell.pages import Fields, Page, Shown, Visit


async def view(visit: Visit) -> Shown:
    """Return an empty form, and the groups that would receive a message.

    Raises:
        TopicNotFoundError: No broker has the topic.
    """
    topic = visit.path["topic"]
    check_parameters(visit.query, ())
    configs = await visit.reading.topic(topic)
    groups = await outcome(visit.reading.groups())
    values: dict[str, Any] = {
        "topic": topic,
        "path": _path(topic),
        "step": "form",
        "configs": configs,
        "receivers": receivers_of(groups, topic),
    }
    return Shown(N_("Send a message"), values, _recipe(visit, Message(topic, "…")))


async def act(visit: Visit, fields: Fields) -> Shown:
    """Send the message.

    Raises:
        ErucaError: As for sending; the message may be stored if no broker answered in time.
        ValidationError: A field is invalid; nothing was sent.
    """
    topic = visit.path["topic"]
    body = next(iter(fields.get("body", [""]))).replace("\r\n", "\n")  # forms have CRLF
    message = Message(
        topic, body, keys=text_of(fields, "keys").split(), tag=text_of(fields, "tag") or None
    )
    async with visit.reading.client.producer() as producer:
        result = await producer.send(message)
    visit.reading.cache.clear()
    values: dict[str, Any] = {
        "topic": topic,
        "path": _path(topic),
        "step": "done",
        "result": result,
    }
    return Shown(N_("Send a message"), values, _recipe(visit, message))


def _path(topic: str) -> str:
    return f"/topics/{topic}/send"


def _recipe(visit: Visit, message: Message) -> recipes.Recipe:
    body = message.body.decode()
    more = f", keys={list(message.keys)!r}" if message.keys else ""
    more += f", tag={message.tag!r}" if message.tag else ""
    return recipes.Recipe(
        "",
        recipes.python(
            visit.namesrv_urls,
            "with client.producer() as producer:",
            f"    producer.send(eruca.Message({message.topic!r}, {body!r}{more}))",
        ),
        recipes.cli(
            *("send", "--topic", message.topic),
            *(word for key in message.keys for word in ("--key", key)),
            *(("--tag", message.tag) if message.tag else ()),
            body,
        ),
    )


PAGE: Final = Page(
    "topic_send",
    "/topics/{topic}/send",
    "topics",
    view,
    parents=((N_("Topics"), "/topics"),),
    act=act,
    is_live=False,
)
