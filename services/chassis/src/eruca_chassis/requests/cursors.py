"""Opaque cursors of lists: the beginning of the next page, in a form that nobody builds by hand.

A cursor holds the last name of the previous page. The next page begins after that name, whatever
was added or removed meanwhile.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

from eruca.contract.errors import ValidationError


def encode_cursor(last: str) -> str:
    """Return the cursor that continues after *last*."""
    return urlsafe_b64encode(last.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, pointer: str = "/query/cursor") -> str | None:
    """Return the name after which a cursor continues; None for the first page.

    Args:
        cursor: As sent by the client.
        pointer: Its place in the request.

    Raises:
        ValidationError: The cursor was not issued by a list of this service.
    """
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        last = urlsafe_b64decode(padded.encode("ascii")).decode()
    except (UnicodeError, binascii.Error):
        last = ""
    if not last or encode_cursor(last) != cursor:
        detail = "invalid cursor; use next_cursor of a list"
        raise ValidationError.at(pointer, detail, fix="omit cursor to get the first page")
    return last
