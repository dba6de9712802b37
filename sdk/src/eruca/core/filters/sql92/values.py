"""The values that a filter compares, by Java's rules for numbers and their order.

A property is always a text. Compared with a number, it is converted to that number's Java type:
"5.5" is invalid beside ``5`` and valid beside ``5.0``. Compared with TRUE or FALSE, it is true if
its text is "true" in any case, and false otherwise. A failed conversion is an error, and a message
whose evaluation ends in an error does not match.

Doubles are ordered as by ``Double.compareTo``: NaN equals itself and is above all others, and -0.0
is below 0.0.

Source: RocketMQ 5.3, ``ComparisonExpression``; Java's ``Integer.valueOf``, ``Double.valueOf``.
"""

from __future__ import annotations

import re
from math import copysign, inf
from typing import Final, TypeAlias

_INTEGER_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_INTEGRAL = re.compile(r"([+-]?)0*(\d{1,19})")
_DECIMAL = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII)
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[\da-fA-F]+\.?|[\da-fA-F]*\.[\da-fA-F]+)[pP][+-]?\d+)[fFdD]?", re.ASCII
)
_NAMED: Final = {
    sign + name: float(sign + name) for sign in ("", "+", "-") for name in ("NaN", "Infinity")
}
_TRIMMED: Final = "".join(map(chr, range(0x21)))  # characters that Java's String.trim removes
_TRUE: Final = "true"


class EvaluationError(ValueError):
    """A property does not have the type of its comparison; the message does not match."""


class Integer(int):
    """A 32-bit number: the type of a literal that fits."""

    __slots__ = ()


class Long(int):
    """A 64-bit number."""

    __slots__ = ()


Number: TypeAlias = Integer | Long | float
Value: TypeAlias = str | bool | Integer | Long | float


def integral(text: str, largest: int = _LONG_MAX) -> int:
    """Return the whole number in *text*: an optional sign and digits, and nothing else.

    Raises:
        EvaluationError: The text is not a whole number, or it is outside -(*largest* + 1) to
            *largest*.
    """
    match = _INTEGRAL.fullmatch(text)
    if match is not None and (text.isascii() or max(text) <= "\uffff"):
        number = int(match[1] + match[2])
        if -largest - 1 <= number <= largest:
            return number
    raise EvaluationError(f"expected a whole number, found {text[:40]!r}")


def integer(text: str) -> Integer:
    """Return the 32-bit number in *text*; raise EvaluationError if it is invalid."""
    return Integer(integral(text, _INTEGER_MAX))


def long(text: str) -> Long:
    """Return the 64-bit number in *text*; raise EvaluationError if it is invalid."""
    return Long(integral(text))


def double(text: str) -> float:
    """Return the double in *text* by Java's rules, NaN and hexadecimal forms included.

    Raises:
        EvaluationError: The text is not a number.
    """
    match = _DECIMAL.fullmatch(text)
    if match is None:
        text = text.strip(_TRIMMED)
        if text in _NAMED:
            return _NAMED[text]
        match = _DECIMAL.fullmatch(text)
    if match is not None:
        return float(match[1])
    match = _HEXADECIMAL.fullmatch(text)
    if match is None:
        raise EvaluationError(f"expected a number, found {text[:40]!r}")
    try:
        return float.fromhex(match[1])
    except OverflowError:
        return -inf if text.startswith("-") else inf


def boolean(text: str) -> bool:
    """Return whether *text* is "true"."""
    return text.lower() == _TRUE


READERS: Final = {Integer: integer, Long: long, float: double}


def compare_doubles(left: float, right: float) -> int:
    """Return -1, 0 or 1 for *left* below, equal to or above *right*."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        if left == 0:
            return int(copysign(1, left) - copysign(1, right)) // 2
        return 0
    return int(left != left) - int(right != right)  # noqa: PLR0124 - only NaN differs from itself


def compare_numbers(left: Number, right: Number) -> int:
    """Return -1, 0 or 1; if one is a double, both are compared as doubles."""
    if type(left) is float or type(right) is float:
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def compare(left: Value, right: Value) -> int:
    """Return -1, 0 or 1, after converting a text to the other's type; -1 for types without order.

    Raises:
        EvaluationError: A text is not of the other's type, or is to the right of a truth value.
    """
    if isinstance(left, str):
        if isinstance(right, str):
            return (left > right) - (left < right)
        if isinstance(right, bool):
            return boolean(left) - right
        return compare_numbers(READERS[type(right)](left), right)
    if isinstance(left, bool):
        if isinstance(right, str):
            raise EvaluationError("a truth value can only be compared with the value to its right")
        return left - right if isinstance(right, bool) else -1
    if isinstance(right, bool):
        return -1
    if isinstance(right, str):
        return compare_numbers(left, READERS[type(left)](right))
    return compare_numbers(left, right)


def equal(left: Value | None, right: Value | None) -> bool | None:
    """Return whether both are equal; None if only the left one is unknown.

    RocketMQ's rule is asymmetric: an unknown right side is simply different, and two unknown values
    are equal.
    """
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    return compare(left, right) == 0
