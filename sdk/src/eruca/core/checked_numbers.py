"""Numbers as a program gives them, refused before anything is begun with them."""

from __future__ import annotations

import math
from numbers import Integral

from eruca.contract.errors import ValidationError


def check_count(name: str, value: int, lowest: int, highest: int | None = None) -> None:
    """Raise ValidationError for what is no whole number from *lowest* to *highest*."""
    if not isinstance(value, Integral):
        raise ValidationError(f"{name}: {value!r} is no whole number")
    check_range(name, value, lowest, highest)


def check_range(name: str, value: float, lowest: float, highest: float | None = None) -> None:
    """Raise ValidationError for what is not from *lowest* to *highest*; None: no end."""
    if highest is None:
        if not lowest <= value < math.inf:
            raise ValidationError(f"{name}: {value} is not {lowest:g} or more")
    elif not lowest <= value <= highest:
        raise ValidationError(f"{name}: {value} is not from {lowest:g} to {highest:g}")


def checked_seconds(value: float, name: str) -> float:
    """Return a time-out; it must be more than nothing and less than for ever."""
    if not 0 < value < math.inf:
        raise ValidationError(f"{name}: {value!r} is no number of seconds above 0")
    return value
