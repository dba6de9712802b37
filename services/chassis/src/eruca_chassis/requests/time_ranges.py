"""Refuse time ranges whose end is earlier than their beginning."""

from __future__ import annotations

from datetime import datetime

from eruca.contract.errors import ValidationError


def check_order(since: datetime | None, until: datetime | None, *, pointer: str) -> None:
    """Raise ValidationError, with the *pointer* of *since*, if *until* is earlier."""
    if since is not None and until is not None and since > until:
        raise ValidationError.at(
            pointer,
            f"{since.isoformat()} is later than until, {until.isoformat()}",
            fix="set since to the earlier time",
        )
