"""Two times of which the later one comes first enclose nothing, and are refused."""

from __future__ import annotations

from datetime import datetime

from eruca.contract.errors import ValidationError


def check_order(begin: datetime | None, end: datetime | None, *, pointer: str) -> None:
    """Raise ValidationError, whose *pointer* is the begin's, if *end* is earlier than *begin*."""
    if begin is not None and end is not None and begin > end:
        raise ValidationError.at(
            pointer,
            f"{begin.isoformat()} is later than to, {end.isoformat()}",
            fix="ask for what lies between two times with the earlier one as from",
        )
