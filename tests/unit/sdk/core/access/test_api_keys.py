"""API keys: they are made of random bytes, and only the whole key proves itself."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.core.access.api_keys import ID_SIZE, SECRET_SIZE, new_key, presented_key, proves

KEYS = st.builds(
    new_key,
    st.binary(min_size=ID_SIZE, max_size=ID_SIZE),
    st.binary(min_size=SECRET_SIZE, max_size=SECRET_SIZE),
)


@given(KEYS)
def test_a_new_key_has_the_shape_that_scanners_search_for(key: str) -> None:
    assert key.startswith("eruca_")
    presented = presented_key(key)
    assert presented is not None
    assert len(presented.id) == ID_SIZE
    assert len(key) == len("eruca_") + ID_SIZE + 1 + 43


@given(KEYS, KEYS)
def test_a_key_proves_itself_and_no_other(key: str, other: str) -> None:
    presented = presented_key(key)
    assert presented is not None
    assert proves(presented, hashlib.sha256(key.encode()).hexdigest())
    assert proves(presented, hashlib.sha256(other.encode()).hexdigest()) == (key == other)


@given(KEYS, st.data())
def test_a_key_with_one_other_character_proves_nothing(key: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(key) - 1))
    character = data.draw(st.characters(codec="ascii").filter(lambda c: c != key[at]))
    changed = presented_key(key[:at] + character + key[at + 1 :])
    assert changed is None or not proves(changed, hashlib.sha256(key.encode()).hexdigest())


@pytest.mark.parametrize("suffix", ["\n", " ", "=", "x"])
def test_nothing_may_follow_a_key(suffix: str) -> None:
    key = new_key(bytes(ID_SIZE), bytes(SECRET_SIZE))
    assert presented_key(key + suffix) is None
