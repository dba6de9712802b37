"""Handles: back comes what went out, and nothing that was cut or changed passes for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.core.consuming.lease_handles import (
    Handle,
    MalformedHandleError,
    decode_handle,
    encode_handle,
)

HANDLE = Handle("broker-a", "billing", "flights", 3, 17, 2, 123_456)


@given(st.builds(Handle))
def test_a_handle_comes_back_as_it_was(handle: Handle) -> None:
    text = encode_handle(handle)

    assert decode_handle(text) == handle
    assert text.replace("-", "").replace("_", "").isalnum()


def test_a_handle_that_was_cut_is_none() -> None:
    text = encode_handle(HANDLE)
    for kept in range(len(text)):
        with pytest.raises(MalformedHandleError):
            decode_handle(text[:kept])


def test_a_handle_with_a_changed_character_is_none_or_the_same() -> None:
    """The last character's unused bits say nothing, so some changes of it change nothing."""
    text = encode_handle(HANDLE)
    for place in range(len(text)):
        for other in "Aa0_-zZ9":
            changed = text[:place] + other + text[place + 1 :]
            try:
                assert decode_handle(changed) == HANDLE
            except MalformedHandleError:
                assert changed != text


@given(st.text(max_size=40))
def test_any_text_is_refused_without_surprise(text: str) -> None:
    with pytest.raises(MalformedHandleError):
        decode_handle(text)
