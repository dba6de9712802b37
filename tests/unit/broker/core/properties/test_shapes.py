"""Texts of one shape: found alike when they are, and hashed as each would be by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.contract.hashing import string_hash, tags_code
from eruca_broker.core.properties.hashes import tag_and_keys
from eruca_broker.core.properties.shapes import (
    AlikeTexts,
    column_bounds,
    hash_alike,
    tag_codes,
)


def texts_of(*texts: bytes) -> AlikeTexts:
    return AlikeTexts.of(np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), -1))


@settings(deadline=None)
@given(data=st.data(), count=st.integers(1, 300), width=st.integers(0, 30))
def test_the_bounds_of_columns_are_their_extremes(
    data: st.DataObject, count: int, width: int
) -> None:
    seed = data.draw(st.integers(0, 2**32 - 1))
    rows = np.random.default_rng(seed).integers(0, 256, (count, width), np.uint8)

    low, high = column_bounds(rows)

    assert low.tolist() == rows.min(axis=0).tolist()
    assert high.tolist() == rows.max(axis=0).tolist()


plain = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=6, max_size=6)
odd = st.sampled_from(
    ["ab cd ", "\x01\x01\x01\x01\x01\x01", "ab\x02k\x01v", "\x00bcdef", "日本", "  a  b"]
)


@settings(deadline=None, max_examples=300)
@given(
    tags=st.sampled_from(["", "TAGS", "u"]),
    values=st.lists(st.tuples(plain, plain | odd, plain | odd), min_size=1, max_size=5),
)
def test_texts_with_a_shape_hash_as_each_by_itself(
    tags: str, values: list[tuple[str, str, str]]
) -> None:
    texts = [
        f"{tags}\x01{tag}\x02UNIQ_KEY\x01{unique}\x02KEYS\x01{keys}\x02".encode()
        for tag, unique, keys in values
    ]

    found = hash_alike(texts_of(*texts))

    if found is None:
        return
    expected = [tag_and_keys(text) for text in texts]
    assert found.tag_codes.tolist() == [tags_code(tag) if tag else 0 for tag, _ in expected]
    assert list(zip(found.keys.rows.tolist(), found.keys.hashes.tolist(), strict=True)) == [
        (row, string_hash(key) & 0xFFFF_FFFF)
        for row, (_, keys) in enumerate(expected)
        for key in keys
    ]


def test_plain_texts_have_a_shape_and_its_tag_is_one_number_if_all_have_it() -> None:
    texts = texts_of(b"TAGS\x01ab\x02KEYS\x01k1 k2\x02", b"TAGS\x01ab\x02KEYS\x01k3 k4\x02")

    shape = texts.shape

    assert shape is not None
    assert shape.names == {b"TAGS", b"KEYS"}
    assert (shape.tag, shape.keys) == ((5, 7), [(13, 15), (16, 18)])
    assert tag_codes(texts, shape) == tags_code("ab")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"KEYS\x01ab\x02", b"KEYT\x01ab\x02"),
        (b"KEYS\x01ab\x02", b"KEY\x01Sab\x02"),
        (b"KEYS\x01abc\x02", b"KEYS\x01a c\x02"),
        (b"KEYS\x01abc\x02", b"KEYS\x01a\x00c\x02"),
        (b"KEYS\x01abc\x02", b"KEYS\x01a\xffc\x02"),
        (b"KEYS\x01ab\x02", b"KEYS\x01ab\x03"),
        (b"a\x01bb\x02c\x01d\x02", b"a\x01b\x02cc\x01d\x02"),
    ],
)
def test_texts_that_read_differently_have_no_shape(one: bytes, other: bytes) -> None:
    assert texts_of(one, other).shape is None
    assert texts_of(other, one).shape is None


def test_joined_texts_are_all_of_them() -> None:
    parts = [texts_of(b"KEYS\x01a1\x02"), texts_of(b"KEYS\x01a2\x02", b"KEYS\x01b1\x02")]

    joined = AlikeTexts.joined(parts)

    assert joined.rows.tobytes() == b"KEYS\x01a1\x02KEYS\x01a2\x02KEYS\x01b1\x02"
    assert (joined.low.tobytes(), joined.high.tobytes()) == (b"KEYS\x01a1\x02", b"KEYS\x01b2\x02")
