"""Numbers of versions of the rules, as addresses name them."""

from __future__ import annotations

from typing import Final

from eruca.contract.errors import ValidationError

DIGIT_COUNT_MAX: Final = 18  # of a number that the controllers accept


def version_number(text: str, name: str) -> int | None:
    """Return the number that a parameter has; None: it is empty.

    Raises:
        ValidationError: It is no number of a version; the error names the parameter.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGIT_COUNT_MAX and int(text)):
        raise ValidationError(
            f"query.{name}: expected the number of a version, found {text[:20]!r}",
            fix="choose one of the list of versions",
        )
    return int(text)
