"""Refuse time ranges whose end is earlier than their beginning."""

from __future__ import annotations

from datetime import datetime

from eruca.contract.errors import ValidationError


def check_order(begin: datetime | None, end: datetime | None, *, pointer: str) -> None:
    """Raise ValidationError, with the *pointer* of the begin, if *end* is earlier than *begin*."""
    if begin is not None and end is not None and begin > end:
        raise ValidationError.at(
            pointer,
            f"{begin.isoformat()} is later than to, {end.isoformat()}",
            fix="give the earlier time as from",
        )
