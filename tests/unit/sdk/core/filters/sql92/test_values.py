"""Java's numbers: which texts are some, and how they are ordered."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.core.filters.sql92.values import (
    EvaluationError,
    Integer,
    Long,
    Value,
    boolean,
    compare,
    compare_doubles,
    compare_numbers,
    double,
    equal,
    integer,
    integral,
    long,
)


@given(st.integers(-(2**64), 2**64))
def test_a_whole_number_is_read_within_its_type(number: int) -> None:
    for read, size in ((integer, 2**31), (long, 2**63)):
        for text in (str(number), f"{number:+}", f"{number:025}"):
            if -size <= number < size:
                assert read(text) == number
            else:
                with pytest.raises(EvaluationError):
                    read(text)


@pytest.mark.parametrize(("read", "size"), [(integer, 2**31), (long, 2**63)])
def test_the_ends_of_a_type_belong_to_it(read: Callable[[str], int], size: int) -> None:
    assert (read(str(size - 1)), read(str(-size))) == (size - 1, -size)
    for beyond in (size, -size - 1):
        with pytest.raises(EvaluationError):
            read(str(beyond))


@pytest.mark.parametrize(
    "text", ["", " 5", "5 ", "5.0", "0x5", "1_000", "5l", "+", "--5", "5\n", "\U0001d7f5"]
)
def test_only_digits_are_a_whole_number(text: str) -> None:
    with pytest.raises(EvaluationError):
        integral(text)


def test_digits_of_any_script_are_digits() -> None:
    assert integral("-٣") == -3


def test_a_whole_number_may_be_long_if_zeros_make_it_so() -> None:
    assert integral("0" * 30_000 + "7") == 7
    with pytest.raises(EvaluationError):
        integral("0" * 30_000 + "x")


@given(st.floats())
def test_a_double_is_read_as_it_is_written(number: float) -> None:
    text = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(str(number), str(number))

    for written in (text, f" {text}\t"):
        assert compare_doubles(double(written), number) == 0
    if math.isfinite(number):
        assert compare_doubles(double(f"{text}d"), number) == 0
        assert compare_doubles(double(f"{number.hex()}F"), number) == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (".5", 0.5),
        ("5.", 5.0),
        ("+1E3", 1000.0),
        ("1e400", math.inf),
        ("-1e400", -math.inf),
        ("0x.8p1", 1.0),
        ("0x1p2000", math.inf),
        ("-0x1p2000", -math.inf),
        ("+Infinity", math.inf),
    ],
)
def test_doubles_have_javas_forms(text: str, number: float) -> None:
    assert double(text) == number


@pytest.mark.parametrize(
    "text",
    ["", "x", "nan", "inf", "infinity", "1_0", "1e", ".", "0x1", "٣", "\u00a05", "1" * 9 + "x"],
)
def test_what_java_does_not_read_is_no_double(text: str) -> None:
    with pytest.raises(EvaluationError):
        double(text)


def test_doubles_have_one_order() -> None:
    """NaN above all else and equal to itself; minus zero below zero."""
    ordered = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]

    for (i, left), (j, right) in product(enumerate(ordered), repeat=2):
        assert compare_doubles(left, right) == (i > j) - (i < j)


def test_a_whole_number_beside_a_double_is_rounded_to_one() -> None:
    assert compare_numbers(Long(2**53 + 1), float(2**53)) == 0
    assert compare_numbers(Long(2**53 + 1), Long(2**53)) == 1
    assert compare_numbers(0.5, Integer(1)) == -1


@pytest.mark.parametrize(("text", "expected"), [("tRuE", True), ("1", False), ("", False)])
def test_a_text_is_true_where_it_says_so(text: str, *, expected: bool) -> None:
    assert boolean(text) is expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("b", "a", 1),
        ("2", Integer(10), -1),
        ("3000000000", Long(3_000_000_000), 0),
        ("1.5", 1.25, 1),
        ("TRUE", True, 0),
        ("x", True, -1),
        (Integer(10), "2", 1),
        (Integer(1), True, -1),
        (True, False, 1),
        (True, Integer(1), -1),
        (Integer(1), 1.0, 0),
    ],
)
def test_a_text_is_read_as_what_it_is_compared_with(
    left: Value, right: Value, expected: int
) -> None:
    assert compare(left, right) == expected


@pytest.mark.parametrize(
    ("left", "right"),
    [("3000000000", Integer(1)), ("1.0", Long(1)), (1.5, "x"), (True, "true")],
)
def test_what_cannot_be_read_is_an_error(left: Value, right: Value) -> None:
    with pytest.raises(EvaluationError):
        compare(left, right)


def test_only_an_unknown_left_side_makes_equality_unknown() -> None:
    assert equal(None, "x") is None
    assert equal("x", None) is False
    assert equal(None, None) is True
    assert equal("x", "x") is True
    assert equal(math.nan, math.nan) is True
