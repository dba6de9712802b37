"""Refuse JSON with a duplicate member in an object, at any depth.

Parsers take either the last or the first of two. So the sender, a proxy and the service might each
read a different request. None of the parsers used here reports a duplicate. A second parser that
does would cost as much again, so it runs only in case of doubt. The parsed value, encoded again,
has a colon for each member, and the colons in its texts. The original text has the same number,
unless a member was duplicated, a default was filled in, or a colon was escaped.

Source: RFC 8259 section 4; RFC 7493 section 2.3.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from fastapi import Request

from eruca.contract.errors import MalformedBodyError
from eruca.contract.errors.shown import shown
from eruca_chassis.requests.validation import unreadable_body

_ENCODE: Final = msgspec.json.Encoder().encode


def check_members_once(text: bytes | bytearray, understood: object) -> None:
    """Refuse a JSON text with a duplicate member.

    Args:
        text: As sent; it has been parsed without an error.
        understood: The parsed value. A struct omits its defaults when it is encoded; its raw parts
            are checked separately.

    Raises:
        MalformedBodyError: An object in it has a duplicate member.
    """
    if b"\\u" not in text:
        try:
            written = _ENCODE(understood)
        except (TypeError, ValueError, OverflowError, RecursionError):
            pass  # valid JSON that this encoder cannot write, such as half a surrogate pair
        else:
            if text.count(b":") == written.count(b":"):
                return
    try:
        parse_json(text)
    except (ValueError, RecursionError):  # in a part not parsed before, or nested too deep
        raise unreadable_body() from None


def parse_json(text: bytes | bytearray) -> Any:  # noqa: ANN401  (any JSON value)
    """Parse a JSON text; refuse duplicate members.

    Raises:
        MalformedBodyError: An object has a duplicate member.
        ValueError, RecursionError: As ``json.loads``.
    """
    return json.loads(text, object_pairs_hook=_members)


async def check_members(request: Request) -> None:
    """Check a request's body; a dependency of every FastAPI route."""
    understood = getattr(request, "_json", None)  # Starlette's cache of json()'s result
    if understood is not None:
        check_members_once(await request.body(), understood)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedBodyError(
            f"an object in the body has the member {json.dumps(shown(twice))} twice",
            fix="give each member of an object once",
        )
    return members
