"""Java's hashes, against their definitions in plain loops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.hashing import (
    index_hash,
    key_hash,
    long_hash,
    queue_of_hash,
    string_hash,
    tags_code,
    truncating_remainder,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
ANY_TEXT = st.text(st.characters(), max_size=20)


def signed(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def hash_by_definition(text: str) -> int:
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(raw), 2):
        value = signed(31 * value + int.from_bytes(raw[at : at + 2], "big"))
    return value


@given(ANY_TEXT)
def test_the_string_hash_is_a_polynomial_over_utf_16_code_units(text: str) -> None:
    assert string_hash(text) == hash_by_definition(text)


@pytest.mark.parametrize("size", [255, 256, 257, 1_000])
@pytest.mark.parametrize("letter", ["a", "é", "😀", "\ud800"])
def test_long_strings_hash_alike(letter: str, size: int) -> None:
    assert string_hash(letter * size) == hash_by_definition(letter * size)


def test_the_empty_string_hashes_to_zero() -> None:
    assert string_hash("") == 0


@given(ANY_TEXT)
def test_a_tags_code_is_its_hash(tag: str) -> None:
    assert tags_code(tag) == hash_by_definition(tag)


@given(ANY_TEXT, ANY_TEXT)
def test_a_key_hash_has_31_bits_and_covers_topic_and_key(topic: str, key: str) -> None:
    assert key_hash(topic, key) == index_hash(f"{topic}#{key}")
    assert 0 <= key_hash(topic, key) < 2**31


def test_the_one_hash_without_a_magnitude_is_indexed_as_zero() -> None:
    assert string_hash("polygenelubricants") == -(2**31)
    assert index_hash("polygenelubricants") == 0


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_longs_hash_is_its_halves_xored(value: int) -> None:
    assert long_hash(value) == signed((value >> 32) ^ value)


@given(INT32, st.integers(1, 2**31 - 1))
def test_the_remainder_has_the_dividends_sign(dividend: int, divisor: int) -> None:
    remainder = truncating_remainder(dividend, divisor)

    assert (dividend - remainder) % divisor == 0
    assert abs(remainder) < divisor
    assert remainder == 0 or (remainder < 0) == (dividend < 0)


@given(INT32, st.integers(1, 1_024))
def test_every_hash_selects_one_of_the_queues(value: int, count: int) -> None:
    assert 0 <= queue_of_hash(value, count) < count
