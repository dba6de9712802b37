"""Properties as text: what is put together is taken apart again."""

from __future__ import annotations

import pytest
from hypothesis import given

from eruca.contract.properties import (
    RESERVED,
    decode_properties,
    encode_properties,
    split_keys,
)
from support.records import PROPERTIES


@given(PROPERTIES)
def test_properties_are_read_as_they_were_written(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


def test_properties_keep_their_order() -> None:
    assert encode_properties({"b": "1", "a": "2"}) == "b\x011\x02a\x012\x02"


def test_none_is_left_out() -> None:
    assert encode_properties({"a": None, "b": "1"}) == "b\x011\x02"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x011", {"a": "1"}),
        ("a\x011\x02a\x012\x02", {"a": "2"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("\x02\x01v\x02a\x01\x02a\x02", {}),
    ],
)
def test_fragments_without_a_name_or_a_value_are_skipped(
    text: str, expected: dict[str, str]
) -> None:
    assert decode_properties(text) == expected


@pytest.mark.parametrize(
    ("keys", "expected"), [(None, []), ("", []), ("k1", ["k1"]), (" k1  k2 ", ["k1", "k2"])]
)
def test_keys_are_parted_by_blanks(keys: str | None, expected: list[str]) -> None:
    assert split_keys(keys) == expected


@pytest.mark.parametrize("name", ["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "__SHARDINGKEY"])
def test_what_the_system_reads_a_user_may_not_set(name: str) -> None:
    assert name in RESERVED
