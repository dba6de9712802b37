"""Times that a person types into a form, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from eruca.contract.errors import ValidationError


def typed_time(text: str, name: str) -> datetime | None:
    """Return the time of a form's field, in UTC; None: it is empty. Without a zone it is UTC.

    Raises:
        ValidationError: It is no time, or has none in UTC; the error names the field.
    """
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValidationError(
            f"query.{name}: expected a time, found {text[:64]!r}", fix="such as 2026-11-21T08:00"
        ) from None
