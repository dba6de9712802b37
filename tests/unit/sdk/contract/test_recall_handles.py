"""Recall handles: what they name comes back, and nothing else is taken for one."""

from __future__ import annotations

import re

import pytest

from eruca.contract.recall_handles import (
    RECALL_HANDLE_SIZE_MAX,
    MalformedRecallHandleError,
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)


@pytest.mark.parametrize("message_id", ["7F00000100002A9F", "a b  c ", "/é\u0001", "v1 t b 1 x"])
def test_a_handle_names_what_it_was_made_of(message_id: str) -> None:
    handle = RecallHandle("flights", "broker-a", 1_795_327_200_000, message_id)

    text = encode_recall_handle(handle)

    assert decode_recall_handle(text) == handle
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text)


def test_the_longest_names_and_id_fit_into_a_handle() -> None:
    longest = RecallHandle("t" * 255, "b" * 127, 2**63 - 1, "\N{GRINNING FACE}" * 255)

    assert len(encode_recall_handle(longest)) <= RECALL_HANDLE_SIZE_MAX


def test_a_handle_of_rocketmq_is_understood() -> None:
    """In the form of its ``RecallMessageHandle``, with the padding that Java writes."""
    text = "djEgb3JkZXJzIGJyb2tlci1hIDE3OTUzMjcyMDAwMDEgN0YwMA=="

    assert decode_recall_handle(text) == RecallHandle(
        "orders", "broker-a", 1_795_327_200_001, "7F00"
    )


WHOLE = encode_recall_handle(RecallHandle("flights", "broker-a", 17, "id"))


@pytest.mark.parametrize(
    "text", ["", "order-17", "djEg", "é", "%", WHOLE[:-4], WHOLE + "!", "=" * 9]
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(MalformedRecallHandleError, match="expected a recall handle"):
        decode_recall_handle(text)
