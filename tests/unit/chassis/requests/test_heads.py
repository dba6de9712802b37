"""Heads of hot requests: what a signature declares is what is taken, and nothing else."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from fastapi import Header, Path, Query
from fastapi.dependencies.utils import get_dependant
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import ValidationError
from eruca_chassis.requests.heads import HeadReader

PATH = {"name": "a b", "number": "7"}


def declared(
    name: Annotated[str, Path(max_length=3)],
    number: Annotated[int, Path(ge=0, le=100)],
    *,
    start: Annotated[int, Query(ge=-5, le=2**63 - 1)],
    share: Annotated[float, Query(ge=0, le=30)] = 0,
    kind: Annotated[Literal["plain", "odd"], Query()] = "plain",
    is_deep: Annotated[bool, Query()] = False,
    wanted: Annotated[str | None, Query(alias="filter")] = None,
    marks: Annotated[list[str] | None, Query()] = None,
    token: Annotated[str | None, Header(alias="X-Token")] = None,
) -> None: ...


READER = HeadReader(get_dependant(path="/{name}/{number}", call=declared))


def read(query: str, *, path: dict[str, str] = PATH, **headers: bytes) -> dict[str, Any]:
    named = {name.encode().replace(b"_", b"-"): value for name, value in headers.items()}
    return READER.read(path, query.encode(), named)


def refused_at(query: str, **more: Any) -> str:  # noqa: ANN401 - as read takes it
    with pytest.raises(ValidationError) as refused:
        read(query, **more)
    [error] = refused.value.errors
    return str(error["pointer"])


def test_only_what_is_given_is_returned_and_by_the_names_of_the_signature() -> None:
    assert read("start=1") == {"name": "a b", "number": 7, "start": 1}
    assert read(
        "start=-5&share=1e-05&kind=odd&is_deep=true&filter=a%26b+c&marks=x&marks=y", x_token=b"\xfc"
    ) == {
        "name": "a b",
        "number": 7,
        "start": -5,
        "share": 1e-05,
        "kind": "odd",
        "is_deep": True,
        "wanted": "a&b c",
        "marks": ["x", "y"],
        "token": "ü",
    }


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("", "/query/start"),
        ("start=1&strat=2", "/query/strat"),
        ("start=1&wanted=2", "/query/wanted"),  # a name of the code's, and none of the API's
        ("start=1&start=2", "/query/start"),
        ("start=x", "/query/start"),
        ("start=1.0", "/query/start"),
        ("start=%D9%A3", "/query/start"),
        ("start=1&share=nan", "/query/share"),
        ("start=1&share=1_0", "/query/share"),
        ("start=1&kind=even", "/query/kind"),
        ("start=1&is_deep=1", "/query/is_deep"),
        ("start=1&is_deep=", "/query/is_deep"),
        ("start=1&a/b~c=1", "/query/a~1b~0c"),
    ],
)
def test_what_is_not_declared_is_refused_and_named(query: str, pointer: str) -> None:
    assert refused_at(query) == pointer


@given(start=st.integers(-(2**70), 2**70), number=st.integers(-200, 200))
def test_a_whole_number_is_taken_exactly_within_its_declared_limits(
    start: int, number: int
) -> None:
    path = PATH | {"number": str(number)}
    if not 0 <= number <= 100:
        assert refused_at(f"start={start}", path=path) == "/path/number"
    elif not -5 <= start <= 2**63 - 1:
        assert refused_at(f"start={start}", path=path) == "/query/start"
    else:
        values = read(f"start={start}", path=path)
        assert (values["start"], values["number"]) == (start, number)


@given(share=st.floats(-60, 60, allow_subnormal=False))
def test_a_number_is_taken_exactly_within_its_declared_limits(share: float) -> None:
    if 0 <= share <= 30:
        assert read(f"start=1&share={share!r}")["share"] == share
    else:
        assert refused_at(f"start=1&share={share!r}") == "/query/share"


def test_a_refusal_says_what_was_expected_and_what_was_found() -> None:
    with pytest.raises(ValidationError, match="expected a whole number from 0 to 100, found '101'"):
        read("start=1", path=PATH | {"number": "101"})
    with pytest.raises(ValidationError, match="expected plain or odd, found 'even'"):
        read("start=1&kind=even")


def test_a_parameter_that_nothing_reads_is_refused_when_it_is_declared() -> None:
    def takes_bytes(*, raw: Annotated[bytes, Query()] = b"") -> None: ...

    def takes_any_number(*, count: Annotated[int, Query(ge=0)] = 0) -> None: ...

    with pytest.raises(AssertionError, match="raw"):
        HeadReader(get_dependant(path="/", call=takes_bytes))
    with pytest.raises(ValueError, match="unpack"):
        HeadReader(get_dependant(path="/", call=takes_any_number))
