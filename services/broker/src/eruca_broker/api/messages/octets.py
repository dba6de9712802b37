"""One message whose body is the request's body: nothing to escape, nothing to encode.

The query contains the other fields of the JSON form, under the same names. Percent-encoding lets
them contain any character: ``?tag=png&keys=17&keys=cats&properties=camera=left&delay_seconds=5``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from eruca.contract.errors import ValidationError
from eruca.contract.messages import NewMessage
from eruca_broker.api.bodies import place_of
from eruca_broker.core.records.new_messages import Octets
from eruca_chassis.requests.heads import fault

_NO_BODY: Final[dict[str, str]] = {}  # replaced when the request's body is whole


def described_message(given: Mapping[str, Any]) -> NewMessage:
    """Return the message that a query describes, without its body.

    Args:
        given: The query's fields, by the names of :class:`NewMessage`; ``properties`` are texts.

    Raises:
        ValidationError: A value is invalid.
    """
    fields = {**given, "body": _NO_BODY, "properties": _by_name(given.get("properties", ()))}
    try:
        return msgspec.convert(fields, NewMessage)
    except msgspec.ValidationError as error:
        message, place = place_of(str(error))
        raise ValidationError.at(f"/query{place}", message) from error


def with_body(described: NewMessage, octets: bytes) -> NewMessage:
    """Return the message that a query describes, with its body."""
    return msgspec.structs.replace(described, body=Octets(octets=octets))


def _by_name(properties: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in properties:
        name, equals, value = text.partition("=")
        if not equals:
            raise fault("query", "properties", f"expected NAME=VALUE, found {text[:80]!r}")
        if name in named:
            raise fault("query", "properties", f"{name[:80]!r} is given twice")
        named[name] = value
    return named
