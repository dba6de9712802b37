"""Arguments are checked by functions that take a type apart once: they decide as a plain look does.

The plain look takes the type apart for each value, and checks one item after the other.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Protocol, TypeVar, Union, get_args, get_origin
from unittest.mock import Mock

import pytest

from eruca.core import checked_arguments

T = TypeVar("T")


class HasName(Protocol):
    """A protocol, which isinstance does not support."""

    name: str


KINDS: list[Any] = [
    *(str, bytes, bool, int, float, None, datetime, Any, T, HasName, typing.Callable),
    *(Literal["a", 1], Literal["a"] | None, Annotated[int, "unit"], Annotated[str, ""] | None),
    *(Callable[[int], str], Callable[[], None] | None, Callable[..., Any], Callable[[int], int]),
    *(list[int], Iterable[str], Mapping[str, int], Sequence[bytes] | str, tuple[int, ...] | None),
    *(str | int | None, float | Callable[[int, int], int], HasName | None, Any | None, T | None),
    str | Mapping[str, int | None] | Callable[[int], int] | Literal[7],
]
VALUES: list[Any] = [
    *("a", "", b"a", True, False, 0, 1, 7, 1.5, None, datetime.now(UTC), object(), [], [1], ["a"]),
    *((1,), ("a",), {}, {"a": 1}, {"a": None}, {1: 1}, {"a"}, iter([1]), int, len, print, max),
    *(
        ["a", 1],
        [1, None],
        [True, 2],
        ("a", b"a"),
        [Mock(spec=str)],
        {"a": 1, "b": None},
        Mock(spec=1),
    ),
    *(lambda: None, lambda _: None, lambda _a, _b: 0, lambda *_: None, lambda *, _a: None),
]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_what_is_taken_apart_once_decides_as_the_plain_look(kind: Any) -> None:  # noqa: ANN401
    fits = checked_arguments._check_of(kind)

    decided = [fits(value) for value in VALUES]

    assert decided == [_looks_right(value, kind) for value in VALUES]
    assert set(map(type, decided)) == {bool}


def _looks_right(value: object, kind: Any) -> bool:  # noqa: ANN401
    origin = get_origin(kind)
    if origin is Annotated:
        return _looks_right(value, get_args(kind)[0])
    if origin in (Union, UnionType):
        return any(_looks_right(value, one) for one in get_args(kind))
    if origin is Literal:
        return isinstance(value, str | int) and value in get_args(kind)
    if kind is None or kind is NoneType:
        return value is None
    if kind is float:
        return isinstance(value, Real)
    if kind is int:
        return isinstance(value, Integral)
    if kind is Any or isinstance(kind, TypeVar):
        return True
    if origin is Callable:
        return callable(value) and checked_arguments._takes(value, get_args(kind))
    if origin is not None and isinstance(origin, type):
        return _looks_right_generic(value, origin, get_args(kind))
    return not isinstance(kind, type) or _is_instance(value, kind)


def _looks_right_generic(value: object, origin: type, arguments: tuple[Any, ...]) -> bool:
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _looks_right(key, arguments[0]) and _looks_right(item, arguments[1])
            for key, item in value.items()
        )
    if not _is_instance(value, origin):
        return False
    if issubclass(origin, Iterable) and arguments:
        if isinstance(value, str | bytes):
            return False  # its characters are not items
        if isinstance(value, list | tuple | set | frozenset | dict):  # others are read only once
            return all(_looks_right(item, arguments[0]) for item in value)
    return True


def _is_instance(value: object, kind: type) -> bool:
    try:
        return isinstance(value, kind)
    except TypeError:
        return True  # a protocol that isinstance does not support
