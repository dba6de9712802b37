"""Idempotency keys in a header: what one is, and how it is written."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import ValidationError
from eruca.contract.limits import IDEMPOTENCY_KEY_SIZE_MAX
from eruca.core.messages.idempotency_keys import decode_key, encode_key

KEYS = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E),
    min_size=1,
    max_size=IDEMPOTENCY_KEY_SIZE_MAX,
).filter(lambda key: key.strip(".") != "")


@given(key=KEYS)
def test_a_key_comes_back_from_its_header(key: str) -> None:
    assert decode_key(encode_key(key)) == key


@given(value=st.text(st.characters(max_codepoint=0xFF), max_size=300))
def test_whatever_the_header_says_is_a_key_or_refused(value: str) -> None:
    with suppress(ValidationError):
        assert encode_key(decode_key(value)) in {value, f'"{value}"'}


@pytest.mark.parametrize("value", ["order-17", '"order-17"'])
def test_quotation_marks_make_no_difference(value: str) -> None:
    assert decode_key(value) == "order-17"


@pytest.mark.parametrize(
    "key", ["", ".", "...", "a b", "größer", "a\n", "x" * (IDEMPOTENCY_KEY_SIZE_MAX + 1)]
)
def test_other_texts_are_no_keys(key: str) -> None:
    with pytest.raises(ValidationError):
        encode_key(key)
