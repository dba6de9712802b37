"""Cursors of pages: the message after which, or the time before which, the next page begins."""

from __future__ import annotations

import re
from typing import Final

from eruca.contract.errors import ValidationError
from eruca_query.core.found_messages import Position

_FORM: Final = re.compile(r"([0-9]{1,19}):([0-9]{1,19}):([A-Za-z0-9_.@-]{0,127})")
_INT64_MAX: Final = 2**63 - 1


def position_text(position: Position) -> str:
    """Return the content of a cursor; see :func:`eruca_chassis.requests.cursors.encode_cursor`."""
    return f"{position.stored_ms}:{position.log_offset}:{position.broker_name}"


def position_of(text: str) -> Position:
    """Parse the content of a cursor.

    Raises:
        ValidationError: No list of this service issued the cursor.
    """
    match = _FORM.fullmatch(text)
    numbers = (int(match[1]), int(match[2])) if match is not None else None
    if match is None or numbers is None or max(numbers) > _INT64_MAX:
        detail = "the cursor did not come from next_cursor of a page"
        raise ValidationError.at(
            "/query/cursor", detail, fix="omit cursor to begin with the first page"
        )
    return Position(*numbers, match[3])
