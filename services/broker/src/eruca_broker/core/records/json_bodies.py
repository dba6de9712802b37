"""Compare bodies that were sent as JSON.

Two texts are equal if their values are. White space, the order of an object's members, escapes and
the spelling of a number (``1``, ``1.0``, ``1e0``) do not matter. Numbers are compared as decimals,
so that none is rounded.

Source: RFC 8259; RFC 8785 lists the spellings that one value can have.
"""

from __future__ import annotations

import json
from decimal import Decimal, DecimalException
from typing import Any


def is_same_json(one: bytes, other: bytes) -> bool:
    """Tell whether two JSON texts have the same value."""
    if one == other:
        return True
    try:
        return _is_same(_read(one), _read(other))
    except (ValueError, DecimalException, RecursionError):
        return False  # cannot be compared: another text counts as another value


def _read(text: bytes) -> Any:  # noqa: ANN401 - a JSON value
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def _is_same(one: Any, other: Any) -> bool:  # noqa: ANN401
    if type(one) is not type(other):  # true is not 1
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)
