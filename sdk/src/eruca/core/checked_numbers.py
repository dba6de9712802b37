"""Numbers as a program gives them, refused before anything is begun with them."""

from __future__ import annotations

import math
from numbers import Integral, Real

from eruca.contract.errors import ValidationError


def check_count(name: str, value: int, lowest: int, highest: int | None = None) -> None:
    """Raise ValidationError for what is no whole number from *lowest* to *highest*."""
    if not isinstance(value, Integral):
        raise ValidationError(
            f"{name}: {value!r} is no whole number", fix=_fix(name, lowest, highest)
        )
    check_range(name, value, lowest, highest)


def check_range(name: str, value: float, lowest: float, highest: float | None = None) -> None:
    """Raise ValidationError for what is not from *lowest* to *highest*; None: no end."""
    fix = _fix(name, lowest, highest)
    if not isinstance(value, Real):
        raise ValidationError(f"{name}: {value!r} is no number", fix=fix)
    if highest is None:
        if not lowest <= value < math.inf:
            raise ValidationError(f"{name}: {value} is not {_digits(lowest)} or more", fix=fix)
    elif not lowest <= value <= highest:
        raise ValidationError(
            f"{name}: {value} is not from {_digits(lowest)} to {_digits(highest)}", fix=fix
        )


def check_above_zero(name: str, value: float) -> None:
    """Raise ValidationError for what is no number above 0; without end is one."""
    if not (isinstance(value, Real) and value > 0):
        raise ValidationError(f"{name}: {value!r} is not above 0", fix=f"give {name} above 0")


def check_wait(value: float, name: str = "wait_seconds") -> None:
    """Raise ValidationError for what is no number of seconds to wait; for ever is one."""
    if not (isinstance(value, Real) and value >= 0):
        raise ValidationError(
            f"{name}: {value!r} is no number of seconds, 0 or more",
            fix=f"give {name} in seconds, 0 or more",
        )


def checked_seconds(value: float, name: str) -> float:
    """Return a time-out; it must be more than nothing and less than for ever."""
    if not (isinstance(value, Real) and 0 < value < math.inf):
        raise ValidationError(
            f"{name}: {value!r} is no number of seconds above 0",
            fix=f"give {name} in seconds, above 0",
        )
    return value


def _fix(name: str, lowest: float, highest: float | None) -> str:
    if highest is None:
        return f"give {name} of {_digits(lowest)} or more"
    return f"give {name} from {_digits(lowest)} to {_digits(highest)}"


def _digits(limit: float) -> str:
    return f"{limit:.15g}"
