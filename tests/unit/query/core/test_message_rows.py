"""Rows of messages: what numpy makes of a block is what the codec reads off each record."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.contract.properties import (
    KEYS,
    TAGS,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from eruca.contract.records import (
    DamagedRecordError,
    Host,
    Record,
    encode_blank,
    encode_record,
)
from eruca_query.core.block_columns import BlockColumns
from eruca_query.core.key_hashes import key_hash
from eruca_query.core.message_rows import message_rows
from eruca_query.core.unique_ids import id_text, stored_id
from support.copied_rows import copied_rows

TOPIC_NUMBERS = {"t": 7, "订单": 8, "%RETRY%" + "g" * 124: 9}
hosts = st.sampled_from([Host.parse("10.0.0.1", 1), Host.parse("2001:db8::1", 65_535)])
words = st.text(st.characters(exclude_characters="\x01\x02 ", exclude_categories=["Cs"]))
values = st.one_of(
    words.filter(bool),
    st.lists(words, min_size=1, max_size=4).map(" ".join).filter(bool),
    st.sampled_from(["x" * 200, "a a", " a", "a  b ", " ", "\0", "é", "AAAA" * 8]),
)
ids = st.one_of(
    st.binary(min_size=16, max_size=16).map(lambda raw: raw.hex().upper()),
    st.sampled_from(["0" * 32, "a" * 32, "A" * 31 + "a", "A" * 33, "my-id", "A" * 32]),
)
properties = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([TAGS, KEYS, "KEYSX", "u", "TAG", "UNIQ_KE"]), values),
        st.tuples(st.just(UNIQ_KEY), ids),
    ),
    max_size=6,
).map(lambda pairs: "".join(encode_properties({name: value}) for name, value in pairs))
endings = st.sampled_from(
    ["", "TAGS\x01", "novalue\x02", "k\x01v", "a\x01b\x01c\x02", "\x02", "KEYS\x01k"]
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    return Record(
        topic=draw(st.sampled_from(sorted(TOPIC_NUMBERS))),
        body=draw(st.sampled_from([b"", b"\x02\x01body\x02KEYS\x01no\x02", bytes(300)])),
        queue_id=draw(st.integers(0, 2**31 - 1)),
        queue_offset=draw(st.integers(0, 2**63 - 1)),
        log_offset=draw(st.integers(0, 2**63 - 1)),
        born_timestamp=draw(st.integers(-(2**63), 2**63 - 1)),
        store_timestamp=draw(st.integers(0, 2**63 - 1)),
        born_host=draw(hosts),
        store_host=draw(hosts),
        properties=draw(properties) + draw(endings),
    )


def expected_rows(record: Record) -> list[dict[str, int | bytes]]:
    encoded = encode_record(record)
    found = decode_properties(record.properties)
    topic_no = TOPIC_NUMBERS[record.topic]
    unique_id = found.get(UNIQ_KEY)
    code, other = (bytes(16), b"") if unique_id is None else stored_id(unique_id.encode())
    keys = list(dict.fromkeys(key for key in found.get(KEYS, "").encode().split(b" ") if key))
    return [
        {
            "log_offset": record.log_offset,
            "stored_ms": record.store_timestamp,
            "born_ms": record.born_timestamp,
            "queue_offset": record.queue_offset,
            "unique_id": code,
            "chunk": 5,
            "topic_no": topic_no,
            "queue_id": record.queue_id,
            "size": len(encoded),
            "key_hash": key_hash(topic_no, key) if key else 0,
            "broker_no": 3,
            "key_no": number,
            "tag": found.get(TAGS, "").encode(),
            "keys": found.get(KEYS, "").encode(),
            "other_id": other,
        }
        for number, key in enumerate(keys or [b""])
    ]


def made_rows(some: list[Record]) -> list[dict[str, int | bytes]]:
    block = BlockColumns.of(b"".join(map(encode_record, some)))
    numbers = np.array([TOPIC_NUMBERS[name] for name in block.topics.names], np.int64)
    rows = np.arange(len(block))
    data, count = message_rows(block, rows, numbers[block.topics.numbers], broker_no=3, chunk=5)
    made = copied_rows(data)
    assert len(made) == count
    return made


@settings(max_examples=300)
@given(st.lists(records(), min_size=1, max_size=12))
def test_every_row_says_what_its_record_says(some: list[Record]) -> None:
    assert made_rows(some) == [row for record in some for row in expected_rows(record)]


def test_many_more_than_are_worked_on_in_one_step() -> None:
    some = [
        Record("t", b"x", queue_offset=n, properties=encode_properties({KEYS: f"k{n} l{n % 7}"}))
        for n in range(9_000)
    ]

    assert made_rows(some) == [row for record in some for row in expected_rows(record)]


def test_a_block_without_records_has_no_rows() -> None:
    assert len(BlockColumns.of(b"")) == 0
    assert len(BlockColumns.of(encode_blank(100))) == 0


@pytest.mark.parametrize("cut", range(1, 100))
def test_a_record_that_is_cut_off_is_noticed(cut: int) -> None:
    """Exhaustive over the cut."""
    whole = encode_record(Record("t", b"body", properties="k\x01v\x02"))
    assert len(whole) == 100

    with pytest.raises(DamagedRecordError):
        BlockColumns.of(whole + whole[:cut])


def test_parts_that_do_not_add_up_are_noticed() -> None:
    damaged = bytearray(encode_record(Record("t", b"body")))
    damaged[84 + 3] += 1  # the body's size

    with pytest.raises(DamagedRecordError):
        BlockColumns.of(bytes(damaged))


@given(ids)
def test_an_id_is_told_as_it_was_given(text: str) -> None:
    code, other = stored_id(text.encode())

    assert len(code) == 16
    assert id_text(code, other) == text
    assert UUID(bytes=code).int != 0


def test_ids_that_look_alike_are_stored_apart() -> None:
    lower, upper = stored_id(b"ab" * 16), stored_id(b"AB" * 16)

    assert lower != upper
    assert id_text(bytes(16), b"") is None


@given(words.filter(bool), st.integers(1, 2**31 - 1))
def test_the_hash_of_a_key_is_a_number_of_32_bits_and_never_0(key: str, topic_no: int) -> None:
    hashed = key_hash(topic_no, key.encode())

    assert -(2**31) <= hashed < 2**31
    assert hashed != 0


def test_hashes_of_keys_stay_what_they_are() -> None:
    """They are stored: another function would not find what is there."""
    assert [key_hash(1, b"UA1545"), key_hash(2, b"UA1545"), key_hash(1, b"x" * 300)] == HASHES


HASHES = [994413639, 246291281, 701096323]
