"""Cursors: what was given out comes back, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import ValidationError
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor


@given(name=st.text(min_size=1))
def test_a_cursor_leads_back_to_its_name(name: str) -> None:
    cursor = encode_cursor(name)

    assert decode_cursor(cursor) == name
    assert cursor.isascii()


@given(cursor=st.text())
def test_any_text_is_a_cursor_or_refused(cursor: str) -> None:
    try:
        name = decode_cursor(cursor)
    except ValidationError:
        return
    assert name is not None
    assert encode_cursor(name) == cursor


def test_no_cursor_is_the_first_page_and_an_empty_one_is_none() -> None:
    assert decode_cursor(None) is None
    with pytest.raises(ValidationError) as refused:
        decode_cursor("")
    assert refused.value.errors[0]["pointer"] == "/query/cursor"
