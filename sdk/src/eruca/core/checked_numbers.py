"""Check the numbers that a program passes, before work begins with them."""

from __future__ import annotations

import math
from numbers import Integral, Real

from eruca.contract.errors import ValidationError


def check_count(name: str, value: int, lowest: int, highest: int | None = None) -> None:
    """Raise ValidationError unless *value* is a whole number from *lowest* to *highest*."""
    if not isinstance(value, Integral):
        raise ValidationError(
            f"{name}: expected a whole number, found {value!r}", fix=_fix(name, lowest, highest)
        )
    check_range(name, value, lowest, highest)


def check_range(name: str, value: float, lowest: float, highest: float | None = None) -> None:
    """Raise ValidationError unless *value* is from *lowest* to *highest*; None: no maximum."""
    fix = _fix(name, lowest, highest)
    if not isinstance(value, Real):
        raise ValidationError(f"{name}: expected a number, found {value!r}", fix=fix)
    if highest is None:
        if not lowest <= value < math.inf:
            raise ValidationError(
                f"{name}: expected {_digits(lowest)} or more, found {value}", fix=fix
            )
    elif not lowest <= value <= highest:
        raise ValidationError(
            f"{name}: expected {_digits(lowest)} to {_digits(highest)}, found {value}", fix=fix
        )


def check_above_zero(name: str, value: float) -> None:
    """Raise ValidationError unless *value* is a number above 0; infinity is valid."""
    if not (isinstance(value, Real) and value > 0):
        raise ValidationError(
            f"{name}: expected a number above 0, found {value!r}", fix=f"give {name} above 0"
        )


def check_wait(value: float, name: str = "wait_seconds") -> None:
    """Raise ValidationError unless *value* is a wait in seconds; infinity is valid."""
    if not (isinstance(value, Real) and value >= 0):
        raise ValidationError(
            f"{name}: expected seconds of 0 or more, found {value!r}",
            fix=f"give {name} in seconds, 0 or more",
        )


def checked_seconds(value: float, name: str) -> float:
    """Return a timeout; it must be above 0 and finite."""
    if not (isinstance(value, Real) and 0 < value < math.inf):
        raise ValidationError(
            f"{name}: expected seconds above 0, found {value!r}",
            fix=f"give {name} in seconds, above 0",
        )
    return value


def _fix(name: str, lowest: float, highest: float | None) -> str:
    if highest is None:
        return f"give {name} of {_digits(lowest)} or more"
    return f"give {name} from {_digits(lowest)} to {_digits(highest)}"


def _digits(limit: float) -> str:
    return f"{limit:.15g}"
