"""Log offsets, as addresses name them."""

from __future__ import annotations

from typing import Final

from eruca.contract.errors import ValidationError

DIGIT_COUNT_MAX: Final = 18  # of a log offset that brokers accept


def log_offset_of(text: str) -> int | None:
    """Return the log offset that a parameter has; None: it is empty.

    Raises:
        ValidationError: It is no log offset.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGIT_COUNT_MAX):
        raise ValidationError(
            f"query.log_offset: expected a log offset, found {text[:20]!r}",
            fix="use the log offset of a message or of an event",
        )
    return int(text)
