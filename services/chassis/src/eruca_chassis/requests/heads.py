"""Heads of hot requests, read by the signature that documents them.

FastAPI's analysis of a signature lists the parameters and their types (``Dependant``). The document
is made of it, and so is a :class:`HeadReader`. So an undocumented parameter is refused, and a
documented limit of a number is checked.

Numbers, booleans, choices and lists are read here. Texts are passed on unchanged: the endpoint
checks their length and form, because its refusals are clearer than a pattern's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin
from urllib.parse import unquote_plus

from fastapi.dependencies.models import Dependant
from pydantic.fields import FieldInfo

from eruca.contract.errors import ValidationError
from eruca.contract.errors.shown import shown
from eruca_chassis.requests.parameters import refused_parameters
from eruca_chassis.requests.validation import pointer_to

_Read: TypeAlias = Callable[[str], Any]

_DIGITS_MAX: Final = 19  # of a 64-bit integer
_KNOWN_MAX: Final = 63  # whole numbers that are looked up: most of those in paths
_NUMBER: Final = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_BOOLEANS: Final = {"false": False, "true": True}


class HeadReader:
    """Reads the parameters of one operation from a request's head.

    Args:
        declared: The operation's signature, as FastAPI understands it.
    """

    def __init__(self, declared: Dependant) -> None:
        self._path = [
            (field.alias, field.name, _reader("path", field.alias, field.field_info))
            for field in declared.path_params
        ]
        self._query = {
            field.alias: (field.name, _reader("query", field.alias, field.field_info))
            for field in declared.query_params
        }
        self._lists = {field.alias for field in declared.query_params if _is_list(field.field_info)}
        self._required = [
            (field.alias, field.name)
            for field in declared.query_params
            if field.field_info.is_required()
        ]
        self._headers = [
            (field.alias.lower().encode(), field.name) for field in declared.header_params
        ]

    def read(
        self, path: Mapping[str, str], query: bytes, headers: Mapping[bytes, bytes]
    ) -> dict[str, Any]:
        """Return the parameters that a request gives, by their names in the signature.

        Args:
            path: The path's named segments.
            query: The query, unchanged, without the question mark.
            headers: Names in lower case.

        Raises:
            ValidationError: One is unknown, missing, given twice, or not of its declared type.
        """
        values: dict[str, Any] = {}
        for alias, name, read in self._path:
            text = path[alias]
            values[name] = text if read is str else read(text)
        if query:
            self._read_query(query, values)
        for alias, name in self._required:
            if name not in values:
                raise fault("query", alias, "it is missing")
        for key, name in self._headers:
            if key in headers:
                values[name] = headers[key].decode("latin-1")
        return values

    def _read_query(self, query: bytes, values: dict[str, Any]) -> None:
        is_plain = b"%" not in query and b"+" not in query
        for part in query.decode("utf-8", "replace").split("&"):
            if not part:
                continue
            alias, _, text = part.partition("=")
            if not is_plain:
                alias, text = unquote_plus(alias), unquote_plus(text)
            declared = self._query.get(alias)
            if declared is None:
                raise refused_parameters([alias], self._query.keys())
            name, read = declared
            if alias in self._lists:
                values.setdefault(name, []).append(text)
            elif name in values:
                raise refused_parameters([alias], self._query.keys())
            else:
                values[name] = text if read is str else read(text)


def fault(part: str, name: str, detail: str) -> ValidationError:
    """Return the error for one value in a *part* of a request: ``query``, ``path``, ``body/…``."""
    return ValidationError.at(f"/{part}{pointer_to((shown(name),))}", detail)


def _reader(part: str, name: str, declared: FieldInfo) -> _Read:
    """Return the function that converts a parameter's text to its value."""
    kind = _kind(declared)
    if kind is str or _is_list(declared):
        return str  # as it comes
    if kind is bool:
        return _choice_reader(part, name, _BOOLEANS)
    if get_origin(kind) is Literal:
        return _choice_reader(part, name, {choice: choice for choice in get_args(kind)})
    assert kind in (int, float), f"{name}: a hot route has no reader for {kind}"
    bounds = _bounds(declared)
    read = _integer_reader if kind is int else _number_reader
    return read(part, name, *bounds)


def _kind(declared: FieldInfo) -> Any:  # noqa: ANN401 - a type, or what typing makes of one
    kinds = [one for one in get_args(declared.annotation) if one is not NoneType]
    is_optional = NoneType in get_args(declared.annotation)
    return kinds[0] if is_optional and len(kinds) == 1 else declared.annotation


def _is_list(declared: FieldInfo) -> bool:
    return get_origin(_kind(declared)) is list


def _bounds(declared: FieldInfo) -> tuple[Any, Any]:
    """Return the least and the greatest value that a number may have; both are declared."""
    [least] = (limit.ge for limit in declared.metadata if hasattr(limit, "ge"))
    [most] = (limit.le for limit in declared.metadata if hasattr(limit, "le"))
    return least, most


def _choice_reader(part: str, name: str, choices: Mapping[str, Any]) -> _Read:
    expected = " or ".join(choices)

    def read(text: str) -> Any:  # noqa: ANN401 - one of the choices
        if text not in choices:
            raise fault(part, name, f"expected {expected}, found {shown(text)!r}")
        return choices[text]

    return read


def _integer_reader(part: str, name: str, least: int, most: int) -> _Read:
    known = {str(number): number for number in range(max(least, 0), min(most, _KNOWN_MAX) + 1)}

    def read(text: str) -> int:
        if text in known:
            return known[text]
        digits = text.removeprefix("-") if least < 0 else text
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
        if is_number and least <= (value := int(text)) <= most:
            return value
        expected = f"a whole number from {least} to {most}"
        raise fault(part, name, f"expected {expected}, found {shown(text)!r}")

    return read


def _number_reader(part: str, name: str, least: float, most: float) -> _Read:
    def read(text: str) -> float:
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if least <= value <= most:
            return value
        expected = f"a number from {least:.15g} to {most:.15g}"
        raise fault(part, name, f"expected {expected}, found {shown(text)!r}")

    return read
