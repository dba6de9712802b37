"""A received message as the command line shows it: a JSON object, or one line of text."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.text import Text

    from eruca.core.messages.received_message import ReceivedMessage

_BODY_SHOWN: Final = 500  # characters of a body on its line


def message_document(message: ReceivedMessage) -> dict[str, object]:
    """Return the message in the form of the HTTP contract, with its broker's name."""
    if message.damage is not None:
        return {
            "topic": message.queue.topic,
            "broker_name": message.broker_name,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "damage": message.damage,
        }
    return {
        "topic": message.topic,
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "log_offset": message.log_offset,
        "size": message.size,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tag": message.tag,
        "keys": message.keys,
        "sharding_key": message.sharding_key,
        "properties": message.properties,
        "body": _body_of(message),
        "flag": message.flag,
        "reconsume_times": message.reconsume_times,
        "born_at": time_text(message.born_at),
        "born_host": message.born_host.text,
        "stored_at": time_text(message.stored_at),
        "store_host": message.store_host.text,
    }


def body_document(body: bytes, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return a body as in the contract: as JSON if it is JSON, else text, else base64."""
    import json

    from eruca.contract.properties import BODY_FORMAT, JSON_FORMAT

    try:
        if properties.get(BODY_FORMAT) == JSON_FORMAT:
            with suppress(ValueError, RecursionError):  # otherwise it is shown unchanged
                return {"json": json.loads(body)}
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def body_line(body: Mapping[str, Any]) -> str:
    """Return a body from its contract form, as text for people."""
    import json

    if "json" in body:
        return json.dumps(body["json"], ensure_ascii=False, separators=(",", ":"))
    text: str | None = body.get("text")
    return f"base64:{body.get('base64', '')}" if text is None else text


def time_text(moment: datetime) -> str:
    """Return a time as RFC 3339, in UTC, to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def message_line(message: ReceivedMessage) -> Text:
    """Return the message on one line: time, place, tag and keys, body."""
    from rich.text import Text

    line = Text()
    if message.damage is not None:
        line.append(f"{message.broker_name}/{message.queue_id}@{message.queue_offset} ", "cyan")
        line.append(one_line(f"damaged, {message.damage}"), "red")
        return line
    line.append(f"{time_text(message.stored_at)} ", "dim")
    line.append(f"{message.broker_name}/{message.queue_id}@{message.queue_offset} ", "cyan")
    if message.tag is not None:
        line.append(f"[{one_line(message.tag)}] ", "green")
    if message.keys:
        line.append(f"{one_line(','.join(message.keys))} ", "yellow")
    body = _body_of(message)
    if "unreadable" in body:
        line.append(one_line(f"unreadable: {body['unreadable']}"), "red")
    else:
        line.append(one_line(body_line(body)))
    return line


def _body_of(message: ReceivedMessage) -> dict[str, Any]:
    """Return the body, or why it is unreadable; an error would hide the messages after it."""
    from eruca.contract.errors import DamagedMessageError

    try:
        return body_document(message.body, message.system_properties)
    except DamagedMessageError as error:
        return {"unreadable": error.detail if error.fix is None else f"{error.detail}; {error.fix}"}


def one_line(text: str) -> str:
    """Return *text* without control characters that change the line, and truncate it."""
    shown = text[: _BODY_SHOWN + 1]
    printable = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown[:_BODY_SHOWN]
    )
    return printable + "…" if len(shown) > _BODY_SHOWN else printable
