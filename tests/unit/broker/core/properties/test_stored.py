"""Single properties of stored records: what the whole text, taken apart, would give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.properties import decode_properties
from eruca.contract.records import Record, encode_record
from eruca_broker.core.properties.stored import StoredProperties, stored_properties
from support.records import PROPERTIES, RECORDS

TEXTS = st.text("aab\x01\x02é", max_size=20)
NAMES = ["a", "b", "aa", "ab", "é"]


@given(TEXTS)
def test_any_text_is_read_as_when_taken_apart(text: str) -> None:
    """Of several with one name the last one counts, and none without a value."""
    known = decode_properties(text)

    found = StoredProperties(text.encode())

    assert {name: found.get(name) for name in NAMES} == {name: known.get(name) for name in NAMES}


@given(RECORDS, PROPERTIES)
def test_they_are_found_in_any_record(record: Record, others: dict[str, str]) -> None:
    known = record.property_map()

    found = stored_properties(memoryview(encode_record(record)))

    assert all(found.get(name) == value for name, value in known.items())
    assert all(found.get(name) is None for name in others.keys() - known.keys())


@pytest.mark.parametrize("topic", ["orders", "%RETRY%" + "g" * 130])
def test_a_long_topic_is_skipped_as_a_short_one(topic: str) -> None:
    record = Record(topic=topic, body=b"x", properties="price\x0125\x02")

    assert stored_properties(memoryview(encode_record(record))).get("price") == "25"


def test_bytes_that_are_no_text_hide_nothing_else() -> None:
    found = StoredProperties(b"a\x01\xff!\x02b\x012\x02")

    assert (found.get("a"), found.get("b")) == ("\ufffd!", "2")
    assert found.size == len(b"\x02a\x01\xff!\x02b\x012\x02")
