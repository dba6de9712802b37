"""Bodies that were sent as JSON: whether two say the same.

Two texts say the same where their values are equal: white space, the order of an object's members,
escapes and the spelling of a number (``1``, ``1.0``, ``1e0``) make no difference. Numbers are
compared as decimals, so that none is rounded.

Source: RFC 8259; RFC 8785 has what a value's spellings have in common.
"""

from __future__ import annotations

import json
from decimal import Decimal, DecimalException
from typing import Any


def is_same_json(one: bytes, other: bytes) -> bool:
    """Tell whether two JSON texts say the same."""
    if one == other:
        return True
    try:
        return _is_same(_read(one), _read(other))
    except (ValueError, DecimalException, RecursionError):
        return False  # beyond what can be compared: another text is another value


def _read(text: bytes) -> Any:  # noqa: ANN401 - a JSON value
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def _is_same(one: Any, other: Any) -> bool:  # noqa: ANN401
    if type(one) is not type(other):  # true is no 1
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)
