"""Arguments are checked by functions that take a type apart once: they decide as a plain look does.

The looks that they are compared with are those of errors, which name the type.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Protocol, TypeVar

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
    *(lambda: None, lambda _: None, lambda _a, _b: 0, lambda *_: None, lambda *, _a: None),
]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_what_is_taken_apart_once_decides_as_the_plain_look(kind: Any) -> None:  # noqa: ANN401
    fits = checked_arguments._check_of(kind)

    decided = [fits(value) for value in VALUES]

    assert decided == [checked_arguments._fits(value, kind) for value in VALUES]
    assert set(map(type, decided)) == {bool}
