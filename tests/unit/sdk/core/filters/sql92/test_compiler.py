"""Whole filters: their meaning beside a dumb oracle, what is refused and how, and their bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import FilterSyntaxError
from eruca.contract.limits import FILTER_SIZE_MAX
from eruca.core.filters.sql92 import (
    CACHE_SIZE,
    DEPTH_MAX,
    EvaluationError,
    Sql92Filter,
    compile_sql92,
)
from eruca.core.filters.sql92.compiler import _compiled

Properties = dict[str, str]
Oracle = Callable[[Properties], Any]

WORDS = "a b 1 -1 2.5 'x' ( ) = <> > <= AND OR NOT IS NULL IN CONTAINS BETWEEN TRUE , - +"
names = st.sampled_from("abc")
properties = st.dictionaries(names, st.integers(-3, 3).map(str))


def _comparison(name: str, symbol: str, number: int) -> tuple[str, Oracle]:
    compare: dict[str, Callable[[int], bool]] = {
        "=": lambda value: value == number,
        "<>": lambda value: value != number,
        ">": lambda value: value > number,
        "<=": lambda value: value <= number,
    }
    return (
        f"{name} {symbol} {number}",
        lambda given: compare[symbol](int(given[name])) if name in given else None,
    )


def _between(name: str, low: int, high: int) -> tuple[str, Oracle]:
    return (
        f"{name} between {low} and {high}",
        lambda given: low <= int(given[name]) <= high if name in given else None,
    )


def _joined(
    keyword: str,
    least: bool,
    parts: list[tuple[str, Oracle]],
) -> tuple[str, Oracle]:
    def evaluate(given: Properties) -> bool | None:
        values = [oracle(given) for _, oracle in parts]
        if least in values:
            return least
        return None if None in values else not least

    return f" {keyword} ".join(f"({text})" for text, _ in parts), evaluate


def _negated(part: tuple[str, Oracle]) -> tuple[str, Oracle]:
    text, oracle = part

    def evaluate(given: Properties) -> bool | None:
        value = oracle(given)
        return None if value is None else not value

    return f"not ({text})", evaluate


filters = st.recursive(
    st.one_of(
        st.builds(_comparison, names, st.sampled_from(["=", "<>", ">", "<="]), st.integers(-3, 3)),
        st.builds(_between, names, st.integers(-3, 0), st.integers(0, 3)),
        names.map(lambda name: (f"{name} IS NULL", lambda given: name not in given)),
    ),
    lambda inner: st.one_of(
        inner.map(_negated),
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: _joined("and", False, parts)),
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: _joined("or", True, parts)),
    ),
    max_leaves=12,
)


def compiled_or_refused(text: str) -> Sql92Filter | FilterSyntaxError:
    try:
        return compile_sql92(text)
    except FilterSyntaxError as error:
        return error


@given(filters, properties)
def test_a_filter_means_what_the_oracle_means(part: tuple[str, Oracle], given: Properties) -> None:
    text, oracle = part

    compiled = compile_sql92(text)

    assert compiled.evaluate(given) is oracle(given)
    assert compiled.matches(given) is (oracle(given) is True)


@given(
    st.lists(
        st.sampled_from(WORDS.split()),
        max_size=14,
    ),
    st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", "x", "NaN", "true", ""])),
)
def test_any_words_compile_or_are_refused_with_a_place(words: list[str], given: Properties) -> None:
    text = " ".join(words)
    compiled = compiled_or_refused(text)
    if isinstance(compiled, FilterSyntaxError):
        assert compiled.position is not None
        assert 0 <= compiled.position <= len(text)
        assert compiled.excerpt
        return
    try:
        value = compiled.evaluate(given)
    except EvaluationError:
        value = None
    assert value in (True, False, None)
    assert compiled.matches(given) is (value is True)


@pytest.mark.parametrize(
    ("text", "position", "excerpt", "fix"),
    [
        ("NOT a > 5", 0, "NOT a", "write NOT (a > 5)"),
        ("b = 1 AND NOT a IN ('x')", 10, "NOT a", "write NOT (a IN ('x'))"),
        ("NOT a NOT IN ('x', 'y')", 0, "NOT a", "write NOT (a NOT IN ('x', 'y'))"),
        ("NOT a BETWEEN 1 AND 2", 0, "NOT a", "write NOT (a BETWEEN 1 AND 2)"),
        ("a == 1", 3, "=", "for equal write a single ="),
        ("a = NULL", 4, "NULL", "write IS NULL, or IS NOT NULL"),
        ("NULL > a", 0, "NULL", "write IS NULL, or IS NOT NULL"),
        ("a LIKE 'x'", 2, "LIKE", "write STARTSWITH, ENDSWITH or CONTAINS"),
        ("a NOT LIKE 'x'", 6, "LIKE", "write STARTSWITH, ENDSWITH or CONTAINS"),
        ("a IS TRUE", 5, "TRUE", "or compare: = TRUE"),
        ("a IN 'x'", 5, "'x'", "write IN ('a', 'b')"),
        ("a IN (1)", 6, "1", "list numbers as texts: IN ('1', '2')"),
        ("a IN ('x' 'y')", 10, "'y'", None),
        ("a > '5'", 4, "'5'", "leave out the quotes for a number; texts have = and <> only"),
        ("a > TRUE", 4, "TRUE", "compare with = or <>"),
        ("a > 1 > 0", 0, "a > 1", "join two conditions with AND"),
        ("a BETWEEN 1", 11, "the end of the filter", "write BETWEEN 1 AND 5"),
        ("a BETWEEN 5 AND 1", 10, "5", None),
        ("TRUE = 1", 7, "1", None),
        ("a AND 5", 6, "5", "compare it with a property"),
        ("a = 0.0", 4, "0.0", "write 0"),
        ("a = 1e999", 4, "1e999", None),
        ("a = 9223372036854775808", 4, "9223372036854775808", None),
        ("a CONTAINS b", 11, "b", None),
        ("(a = 1", 6, "the end of the filter", None),
        ("", 0, "the end of the filter", 'write a condition, such as "price > 20"'),
        ("a = 1 AND", 9, "the end of the filter", None),
    ],
)
def test_a_mistake_is_shown_with_what_to_write(
    text: str, position: int, excerpt: str, fix: str | None
) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        compile_sql92(text)

    error = caught.value
    assert (error.position, error.excerpt, error.fix) == (position, excerpt, fix)
    assert error.detail.endswith(f": {excerpt}, character {position + 1}")


@pytest.mark.parametrize(
    ("text", "position", "fix"),
    [
        ("a = 1 b = 2", 6, "AND or OR"),
        ("a = 1)", 5, "leave it out"),
        ("a - 1 = 0", 2, "no arithmetic"),
        ("a = 1 -- one", 6, "new line"),
    ],
)
def test_what_follows_a_complete_condition_is_refused(text: str, position: int, fix: str) -> None:
    """RocketMQ ignores it."""
    with pytest.raises(FilterSyntaxError, match=fix) as caught:
        compile_sql92(text)

    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("- 5 < a", {"a": "-4"}, True),
        ("- - 5 = a", {"a": "5"}, True),
        ("-2.5 < a", {"a": "-2"}, True),
        ("a = -3000000000", {"a": "-3000000000"}, True),
        ("-a = b", {}, True),
        ("-(a = 1) > 0", {"a": "1"}, None),
        ("(a) IN ('x')", {"a": "x"}, True),
        ("a = 1 = TRUE", {"a": "1"}, True),
        ("a", {"a": "true"}, False),
        ("NOT a", {"a": "true"}, True),
        ("(a > 1) CONTAINS 'x'", {"a": "2"}, False),
        ("a < b", {"a": "9", "b": "10"}, True),
        ("1 = a OR FALSE", {"a": "1"}, True),
        ("a = 'x' OR NULL", {"a": "y"}, None),
        ("a = 1 /* one */ AND --two\n b = 2", {"a": "1", "b": "2"}, True),
    ],
)
def test_rarer_forms_have_rocketmqs_meaning(
    text: str, given: Properties, *, expected: bool | None
) -> None:
    assert compile_sql92(text).evaluate(given) is expected


@pytest.mark.parametrize("text", ["a > 5", "NOT (a > 5)", "a > 5 OR TRUE", "-(a > 5) IS NULL"])
def test_an_error_is_no_match_whatever_stands_around_it(text: str) -> None:
    compiled = compile_sql92(text)

    with pytest.raises(EvaluationError):
        compiled.evaluate({"a": "5.5"})
    assert not compiled.matches({"a": "5.5"})


def test_a_filter_costs_as_much_as_it_is_long() -> None:
    assert compile_sql92("a = 1 AND (b IS NULL)").cost == 9


def test_a_filter_knows_which_properties_it_looks_at() -> None:
    assert compile_sql92("a = 1 AND (b IS NULL OR NOT c) AND TAGS IN ('x')").names == {
        *("a", "b", "c", "TAGS")
    }


@pytest.mark.parametrize(
    "nested",
    [
        lambda depth: "(" * depth + "a = 1" + ")" * depth,
        lambda depth: "NOT " * depth + "a",
        lambda depth: "a" + " IS NULL" * depth,
        lambda depth: "a IN ('x')" + " NOT CONTAINS 'x'" * (depth - 1),
        lambda depth: "(NOT a) = TRUE AND - a IS NULL AND " * 9 + "NOT " * depth + "a",
    ],
    ids=["parentheses", "NOT", "IS", "comparisons", "after neighbours"],
)
def test_nesting_is_bounded(nested: Callable[[int], str]) -> None:
    deepest = DEPTH_MAX - 1

    compile_sql92(nested(deepest)).matches({"a": "1"})

    with pytest.raises(FilterSyntaxError, match="deeper"):
        compile_sql92(nested(DEPTH_MAX + 1))


def test_a_long_chain_is_not_nesting() -> None:
    text = " OR ".join(["a=1"] * 500)

    assert compile_sql92(text).matches({"a": "1"})


def test_size_and_cache_are_bounded() -> None:
    text = "a = 1".ljust(FILTER_SIZE_MAX)

    assert compile_sql92(text) is compile_sql92(text)
    with pytest.raises(FilterSyntaxError, match="4097"):
        compile_sql92(f"{text} ")
    assert _compiled.cache_info().maxsize == CACHE_SIZE
