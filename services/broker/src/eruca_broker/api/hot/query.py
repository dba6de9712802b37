"""The query string and path of a hot route, parsed by hand.

A parameter that is not known is refused, as in bodies: a misspelt one must not pass for a default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import unquote_plus

from eruca.contract.errors import ValidationError
from eruca.contract.fields import OFFSET_MAX

QUEUE_ID_MAX: Final = 2**31 - 1
_DIGITS_MAX: Final = len(str(OFFSET_MAX))
_SMALL: Final = {str(number): number for number in range(64)}
_T = TypeVar("_T", bound=str)
_NUMBER: Final = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def parse_query(
    raw: bytes,
    known: frozenset[str],
    lists: Mapping[str, list[str]] | None = None,
    *,
    refused: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the query's parameters by name.

    Args:
        raw: The query string.
        known: Every name there may be.
        lists: By the names of those that may be given several times, where their values go.
        refused: By the names of those that would be known elsewhere, why they are not here.

    Raises:
        ValidationError: One is unknown, or given twice.
    """
    parameters: dict[str, str] = {}
    if not raw:
        return parameters
    is_plain = b"%" not in raw and b"+" not in raw
    for part in raw.decode("utf-8", "replace").split("&"):
        if not part:
            continue
        name, _, value = part.partition("=")
        if not is_plain:
            name, value = unquote_plus(name), unquote_plus(value)
        if name not in known:
            names = ", ".join(sorted(known)) or "no parameters"
            unknown = f"there is no such parameter; there are: {names}"
            raise fault("query", name, (refused or {}).get(name, unknown))
        if lists is not None and name in lists:
            lists[name].append(value)
            continue
        if name in parameters:
            raise fault("query", name, "it is given twice")
        parameters[name] = value
    return parameters


def integer(
    parameters: Mapping[str, str], name: str, *, default: int | None, least: int, most: int
) -> int:
    """Return a whole number from the query; it must be there where *default* is None."""
    text = parameters.get(name)
    if text is None:
        if default is None:
            raise fault("query", name, "it is missing")
        return default
    return _integer("query", name, text, least=least, most=most)


def optional_integer(
    parameters: Mapping[str, str], name: str, *, least: int, most: int
) -> int | None:
    """Return a whole number from the query, or None where it is not there."""
    text = parameters.get(name)
    return None if text is None else _integer("query", name, text, least=least, most=most)


def path_integer(text: str, name: str, *, most: int) -> int:
    """Return a whole number from the path, from 0 on."""
    known = _SMALL.get(text)
    return known if known is not None else _integer("path", name, text, least=0, most=most)


def seconds(parameters: Mapping[str, str], name: str, *, default: float, most: float) -> float:
    """Return a duration from the query, such as ``2``, ``0.5`` or ``1e-05``."""
    text = parameters.get(name)
    if text is None:
        return default
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not 0 <= value <= most:
        raise fault("query", name, f"{_shown(text)} is no number of seconds from 0 to {most:.0f}")
    return value


def one_of(parameters: Mapping[str, str], name: str, allowed: tuple[_T, ...]) -> _T:
    """Return one of the *allowed* texts from the query; the first where it is not there."""
    text = parameters.get(name, allowed[0])
    for value in allowed:
        if text == value:
            return value
    raise fault("query", name, f"{_shown(text)!r} is none of {', '.join(allowed)}")


def fault(part: str, name: str, detail: str) -> ValidationError:
    """Return the error for one value of a request's query or path."""
    pointer = f"/{part}/{_shown(name).replace('~', '~0').replace('/', '~1')}"
    return ValidationError.at(pointer, detail)


def _integer(part: str, name: str, text: str, *, least: int, most: int) -> int:
    digits = text.removeprefix("-") if least < 0 else text
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    value = int(text) if is_number else least - 1
    if not least <= value <= most:
        raise fault(part, name, f"{_shown(text)} is no whole number from {least} to {most}")
    return value


def _shown(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"
