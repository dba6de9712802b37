"""A failure always has a text, and the text can always be sent."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.limits import ERROR_TEXT_SIZE_MAX
from eruca.core.failure_text import sendable, text_of_error, text_of_value

ANY_TEXT = st.text(st.characters(), max_size=1_200)  # lone surrogates as well


class UnshowableError(Exception):
    """An exception that fails when it is looked at."""

    def __str__(self) -> str:
        raise TypeError("no text")

    def __repr__(self) -> str:
        raise TypeError("no text")


def test_an_exceptions_name_and_text_are_told() -> None:
    assert text_of_error(ValueError("no such aircraft")) == "ValueError: no such aircraft"


def test_what_cannot_be_sent_is_written_as_an_escape() -> None:
    error = ValueError(os.fsdecode(b"no file \xff\0"))

    assert text_of_error(error) == r"ValueError: no file \udcff\x00"


def test_an_exception_that_cannot_be_shown_is_named() -> None:
    assert text_of_error(UnshowableError()) == "UnshowableError: (unprintable)"


def test_a_value_that_cannot_be_shown_is_named() -> None:
    assert text_of_value("maybe") == "'maybe'"
    assert "UnshowableError" in text_of_value(UnshowableError())


@given(text=ANY_TEXT)
def test_as_much_is_told_as_is_kept(text: str) -> None:
    shown = sendable(text).encode()
    whole = text.replace("\0", r"\x00").encode("utf-8", "backslashreplace")

    assert len(shown) <= ERROR_TEXT_SIZE_MAX
    if len(whole) <= ERROR_TEXT_SIZE_MAX:
        assert shown == whole
