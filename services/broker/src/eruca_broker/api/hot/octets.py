"""One message whose body is the request's, octet for octet: nothing to escape, nothing to encode.

What JSON says beside the body is said in the query, under the same names, where percent-encoding
lets it hold any character: ``?tag=png&keys=17&keys=cats&properties=camera=left&delay_seconds=5``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from eruca.contract.errors import ValidationError
from eruca.contract.limits import DELAY_LEVEL_MAX, DELAY_SECONDS_MAX
from eruca.contract.messages import NewMessage
from eruca_broker.api.bodies import place_of
from eruca_broker.api.hot.query import (
    QUEUE_ID_MAX,
    fault,
    optional_integer,
    parse_query,
    seconds,
)
from eruca_broker.core.records.new_messages import Octets

_TEXTS: Final = ("tag", "sharding_key", "message_id", "deliver_at")
_LISTS: Final = ("keys", "properties")
DESCRIBING_PARAMETERS: Final = frozenset(
    {"queue_id", "flag", "delay_seconds", "delay_level", *_TEXTS, *_LISTS}
)
"""What a query may say."""


def parse_described(raw: bytes) -> tuple[int | None, NewMessage]:
    """Return the queue that a query names, or None, and a message without its body.

    Raises:
        ValidationError: A parameter is unknown, given twice where it may not be, or not allowed.
    """
    keys, properties = list[str](), list[str]()
    query = parse_query(raw, DESCRIBING_PARAMETERS, {"keys": keys, "properties": properties})
    fields: dict[str, Any] = {name: query[name] for name in _TEXTS if name in query}
    fields["body"] = {}
    fields["keys"] = keys
    fields["properties"] = _by_name(properties)
    if (flag := optional_integer(query, "flag", least=-(2**31), most=2**31 - 1)) is not None:
        fields["flag"] = flag
    if "delay_seconds" in query:
        fields["delay_seconds"] = seconds(
            query, "delay_seconds", default=0.0, most=DELAY_SECONDS_MAX
        )
    fields["delay_level"] = optional_integer(query, "delay_level", least=1, most=DELAY_LEVEL_MAX)
    try:
        described = msgspec.convert(fields, NewMessage)
    except msgspec.ValidationError as error:
        message, place = place_of(str(error))
        raise ValidationError.at(f"/query{place}", message) from error
    return optional_integer(query, "queue_id", least=0, most=QUEUE_ID_MAX), described


def with_body(described: NewMessage, octets: bytes) -> NewMessage:
    """Return the message that a query describes, with its body."""
    return msgspec.structs.replace(described, body=Octets(octets=octets))


def _by_name(properties: list[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in properties:
        name, equals, value = text.partition("=")
        if not equals:
            raise fault("query", "properties", f"{text[:80]!r} is not NAME=VALUE")
        if name in named:
            raise fault("query", "properties", f"{name[:80]!r} is given twice")
        named[name] = value
    return named
