"""JSON in which an object gives a member twice is refused, at any depth.

Parsers take the last of the two, or the first; so the sender, a proxy and the service may each read
another request. Nothing that is used here to parse notices it. Parsing again would, and costs as
much again; so that is done only where there is a doubt. What was understood, written as JSON again,
has a colon for each member and those in its texts. The text that was sent has the same ones and no
other, unless a member came twice, was given its default, or a colon was escaped.

Source: RFC 8259 section 4; RFC 7493 section 2.3.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from fastapi import Request

from eruca.contract.errors import MalformedBodyError
from eruca_chassis.requests.validation import VALUE_SIZE_MAX, unreadable_body

_ENCODE: Final = msgspec.json.Encoder().encode


def check_members_once(text: bytes | bytearray, understood: object) -> None:
    """Refuse a JSON text that gives a member twice.

    Args:
        text: As it came; it has been parsed without an error.
        understood: What it was parsed to. A struct leaves out its defaults when it is encoded;
            what it keeps raw is looked at separately.

    Raises:
        MalformedBodyError: An object in it gives a member twice.
    """
    if b"\\u" not in text:
        try:
            written = _ENCODE(understood)
        except (TypeError, ValueError, OverflowError, RecursionError):
            pass  # what JSON can say and this encoder cannot, such as half a surrogate pair
        else:
            if text.count(b":") == written.count(b":"):
                return
    try:
        parse_json(text)
    except (ValueError, RecursionError):  # of a part that was not parsed, or nested too deep
        raise unreadable_body() from None


def parse_json(text: bytes | bytearray) -> Any:  # noqa: ANN401  (any JSON value)
    """Return what a JSON text says, of which each object gives a member once.

    Raises:
        MalformedBodyError: One gives a member twice.
        ValueError, RecursionError: As ``json.loads``.
    """
    return json.loads(text, object_pairs_hook=_members)


async def check_members(request: Request) -> None:
    """Look at a request's body, as a dependency of every route of FastAPI's."""
    understood = getattr(request, "_json", None)  # where Starlette keeps what json() has returned
    if understood is not None:
        check_members_once(await request.body(), understood)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        shown = twice if len(twice) <= VALUE_SIZE_MAX else twice[: VALUE_SIZE_MAX - 1] + "…"
        raise MalformedBodyError(
            f"an object in the body gives the member {json.dumps(shown)} twice",
            fix="give each member of an object once",
        )
    return members
