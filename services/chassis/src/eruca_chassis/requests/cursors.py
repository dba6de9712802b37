"""Opaque cursors of lists: where the next page begins, in a form that nobody builds by hand.

A cursor holds the last name of the page before; the next page is what comes after it, whatever was
added or removed meanwhile.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

from eruca.contract.errors import ValidationError


def encode_cursor(last: str) -> str:
    """Return the cursor that continues after *last*."""
    return urlsafe_b64encode(last.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, pointer: str = "/query/cursor") -> str | None:
    """Return the name that a cursor continues after; None for the first page.

    Args:
        cursor: As the client sent it.
        pointer: Where it stands in the request.

    Raises:
        ValidationError: No list of ours gave out this cursor.
    """
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        last = urlsafe_b64decode(padded.encode("ascii")).decode()
    except (UnicodeError, binascii.Error):
        last = ""
    if not last or encode_cursor(last) != cursor:
        detail = "not a cursor that a list gave as next_cursor"
        raise ValidationError.at(
            pointer, detail, fix="leave cursor out to begin with the first page"
        )
    return last
