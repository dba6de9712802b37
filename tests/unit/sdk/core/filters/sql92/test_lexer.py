"""Tokens of a filter: nothing is lost between them, and what is none is shown with a hint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import FilterSyntaxError
from eruca.core.filters.sql92.lexer import KEYWORDS, Kind, Token, next_token, unexpected


def tokens(text: str) -> list[Token]:
    found = [next_token(text, 0)]
    while found[-1].kind is not Kind.END:
        found.append(next_token(text, found[-1].end))
    return found[:-1]


def tokens_up_to_an_error(text: str) -> list[Token]:
    found: list[Token] = []
    try:
        while not found or found[-1].kind is not Kind.END:
            found.append(next_token(text, found[-1].end if found else 0))
    except FilterSyntaxError as error:
        position = error.position
    else:
        position = None
    assert position is None or text[position].strip()
    return found


def texts(text: str) -> list[str]:
    return [token.text for token in tokens(text)]


@given(st.text("aZ_$19 0.eE+-'<>=(),/*\n lL", max_size=30))
def test_tokens_lie_apart_in_the_order_of_the_text(text: str) -> None:
    found = tokens_up_to_an_error(text)

    ends = [0, *(token.end for token in found)]
    assert all(token.start >= end for token, end in zip(found, ends, strict=False))
    assert all(text[token.start : token.end] == token.text for token in found)


@pytest.mark.parametrize("keyword", sorted(KEYWORDS))
def test_a_keyword_is_one_in_any_case_of_letters(keyword: str) -> None:
    assert [token.kind for token in tokens(f"{keyword.lower()} {keyword.title()}")] == [
        Kind.KEYWORD,
        Kind.KEYWORD,
    ]
    assert tokens(keyword.lower())[0].is_(keyword)
    assert tokens(f"{keyword}x")[0].kind is Kind.NAME


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.5.2", ["1.5", ".2"]),
        ("5.", ["5."]),
        (".5e-3", [".5e-3"]),
        ("1e+", ["1", "e", "+"]),
        ("007", ["0", "0", "7"]),
        ("0L", ["0", "L"]),
        ("10L", ["10L"]),
        ("a<>=b", ["a", "<>", "=", "b"]),
        ("a<=>b", ["a", "<=", ">", "b"]),
        ("'it''s' 'x'", ["'it''s'", "'x'"]),
        ("a--b\n=c", ["a", "=", "c"]),
        ("a--b", ["a", "-", "-", "b"]),
        ("/* a ** b */c/**/d", ["c", "d"]),
        ("'/* kept */'", ["'/* kept */'"]),
    ],
)
def test_the_longest_token_wins(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


def test_a_text_says_what_stands_between_its_quotes() -> None:
    assert tokens("'it''s'")[0].unquoted == "it's"


def test_a_text_that_looks_like_a_sign_is_none() -> None:
    [token] = tokens("'='")

    assert not token.is_("=", "'='")


@pytest.mark.parametrize(
    ("text", "position", "hint"),
    [
        ("a != 1", 2, "<>"),
        ('a = "x"', 4, "single quotes"),
        ("a = 'x", 4, "end the text"),
        ("a || b", 2, "OR"),
        ("a && b", 2, "AND"),
        ("a * 2", 2, "no arithmetic"),
        ("a = 1 // x", 6, r"\*/"),
        ("a.b", 1, "letters, digits"),
        ("größe = 1", 2, "letters a to z"),
    ],
)
def test_what_is_no_token_is_shown_with_a_hint(text: str, position: int, hint: str) -> None:
    with pytest.raises(FilterSyntaxError, match=hint) as caught:
        tokens(text)

    assert caught.value.position == position
    assert caught.value.excerpt == text[position:]
    assert f"character {position + 1}" in caught.value.detail


def test_what_is_shown_is_cut() -> None:
    error = unexpected(Token(Kind.TEXT, "x" * 50, 3, 53), "too much")

    assert error.excerpt == "x" * 31 + "…"
    assert unexpected(Token(Kind.TEXT, "x" * 32, 3, 35), "much").excerpt == "x" * 32
    assert error.position == 3
    assert unexpected(Token(Kind.END, "", 3, 3), "more").excerpt == "the end of the filter"
