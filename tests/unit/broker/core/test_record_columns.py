"""Columns: what numpy reads off many records is what the codec reads off each."""

from __future__ import annotations

import gc
import sys
from types import FrameType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.contract.hashing import key_hash, tags_code
from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, encode_properties, split_keys
from eruca.contract.records import Host, Record, SysFlag, encode_record
from eruca.core.messages.record_columns import (
    RecordColumns,
    TopicColumn,
    read_columns,
    sound_structure,
)
from eruca_broker.core.properties.found import (
    KEY_DTYPE,
    FoundProperties,
    find_properties,
)
from support.records import tag_and_keys

hosts = st.sampled_from([Host.parse("10.0.0.1", 1), Host.parse("2001:db8::1", 65_535)])
values = st.one_of(
    st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1),
    st.sampled_from(["a b  c", "x" * 200, "中文 键", "y" * 1_200, "Aa", "BB", " "]),
)
property_lists = st.lists(
    st.tuples(st.sampled_from([TAGS, KEYS, UNIQ_KEY, "KEYSX", "u", "TAG"]), values), max_size=6
)
endings = st.sampled_from(["", "TAGS\x01", "novalue\x02", "k\x01v", "a\x01b\x01c\x02", "\x02"])


@st.composite
def records(draw: st.DrawFn) -> Record:
    text = "".join(encode_properties({name: value}) for name, value in draw(property_lists))
    return Record(
        topic=draw(st.sampled_from(["t", "a-longer-topic", "%RETRY%" + "g" * 124, "订单"])),
        body=draw(st.binary(max_size=40)),
        queue_id=draw(st.integers(0, 2**31 - 1)),
        queue_offset=draw(st.integers(0, 2**62)),
        log_offset=draw(st.integers(0, 2**62)),
        sys_flag=draw(st.sampled_from([0, SysFlag.PREPARED, SysFlag.COMMIT, SysFlag.ROLLBACK])),
        born_host=draw(hosts),
        store_host=draw(hosts),
        store_timestamp=draw(st.integers(0, 2**60)),
        properties=text + draw(endings),
    )


def columns_of(some: list[Record]) -> RecordColumns:
    encoded = [encode_record(record) for record in some]
    sizes = np.array([len(each) for each in encoded], np.int64)
    return read_columns(b"".join(encoded), np.cumsum(sizes) - sizes)


def found_in(columns: RecordColumns) -> FoundProperties:
    return find_properties(
        columns.buffer,
        columns.properties_starts,
        columns.properties_sizes,
        TopicColumn.of(columns),
    )


def assert_found(some: list[Record]) -> None:
    found = found_in(columns_of(some))

    assert found.tag_codes.tolist() == [tags_code(expected_tag(record)) for record in some]
    assert np.frombuffer(found.keys, KEY_DTYPE).tolist() == [
        (key_hash(record.topic, key), row)
        for row, record in enumerate(some)
        for key in expected_keys(record)
    ]


def expected_tag(record: Record) -> str:
    return record.property_map().get(TAGS, "")


def expected_keys(record: Record) -> list[str]:
    known = record.property_map()
    unique = [known[UNIQ_KEY]] if UNIQ_KEY in known else []
    return unique + split_keys(known.get(KEYS))


@settings(deadline=None)
@given(st.lists(records(), min_size=1, max_size=8))
def test_columns_are_the_fields(some: list[Record]) -> None:
    columns = columns_of(some)

    assert sound_structure(columns).all()
    topics = TopicColumn.of(columns)
    assert [topics.names[number] for number in topics.numbers] == [r.topic for r in some]
    assert topics.rows_of("t").tolist() == [record.topic == "t" for record in some]
    assert not topics.rows_of("elsewhere").any()
    assert columns.queue_ids.tolist() == [record.queue_id for record in some]
    assert columns.queue_offsets.tolist() == [record.queue_offset for record in some]
    assert columns.log_offsets.tolist() == [record.log_offset for record in some]
    assert columns.store_timestamps.tolist() == [record.store_timestamp for record in some]
    assert columns.body_sizes.tolist() == [len(record.body) for record in some]
    assert columns.is_queued().tolist() == [
        record.sys_flag in (0, SysFlag.COMMIT) for record in some
    ]
    assert columns.is_indexed().tolist() == [record.sys_flag != SysFlag.ROLLBACK for record in some]


@settings(deadline=None, max_examples=300)
@given(st.lists(records(), min_size=1, max_size=40))
def test_hashes_are_those_of_the_tag_and_of_each_key(some: list[Record]) -> None:
    assert_found(some)


@given(records())
def test_one_record_read_by_itself_agrees(record: Record) -> None:
    tag, keys = tag_and_keys(record.properties.encode())

    assert (tag or "", keys) == (expected_tag(record), expected_keys(record))


@pytest.mark.parametrize("last", ["TAGS\x01a", "KEYS\x01a"])
@pytest.mark.parametrize("size", range(1, 9))
def test_a_last_property_without_its_separator_counts_wherever_it_begins(
    last: str, size: int
) -> None:
    record = Record(topic="t", body=b"x", properties=f"u\x01{'x' * size}\x02{last}")

    assert_found([record])


def test_records_without_properties_have_no_keys() -> None:
    assert_found([Record(topic="t", body=b"x")] * 3)


def test_a_record_may_have_more_keys_than_there_was_room_for() -> None:
    many = Record(topic="t", body=b"x", properties=f"KEYS\x01{' '.join(map(str, range(500)))}\x02")
    few = Record(topic="u", body=b"x", properties="KEYS\x01a b\x02")

    assert_found([few, many, few, many, few])


texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]))
broken = st.sampled_from(
    [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe4\xb8", b"\xf0\x80\x80\x80"]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(texts.map(str.encode), broken), max_size=4), st.booleans())
def test_text_that_is_not_utf8_is_read_as_python_reads_it(parts: list[bytes], is_tag: bool) -> None:
    value = b"".join(parts)
    name = b"TAGS" if is_tag else b"KEYS"
    raw = name + b"\x01" + value + b"\x02UNIQ_KEY\x01u\x02"
    columns = np.zeros(1, np.int64), np.full(1, len(raw), np.int64)

    found = find_properties(raw, *columns, TopicColumn(["t"], np.zeros(1, np.int64)))

    tag, keys = tag_and_keys(raw)
    assert found.tag_codes.tolist() == [tags_code(tag) if tag else 0]
    hashes = np.frombuffer(found.keys, KEY_DTYPE)["hash"].tolist()
    assert hashes == [key_hash("t", key) for key in keys]


@pytest.mark.parametrize("first", [b"", b"\xff "])
def test_what_is_left_to_python_takes_no_more_steps_for_more_keys(first: bytes) -> None:
    few, many = (b"KEYS\x01" + first + b"k " * count for count in (20, 16_000))

    assert calls_for(many) == calls_for(few)


def calls_for(text: bytes) -> int:
    """Return how many functions are called while a text is read."""
    columns = np.zeros(1, np.int64), np.full(1, len(text), np.int64)
    topics = TopicColumn(["t" * 127], np.zeros(1, np.int64))
    calls = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    find_properties(text, *columns, topics)  # what is kept for the next time is there
    gc.disable()  # a collection calls the functions that listen to it
    sys.setprofile(note)
    try:
        find_properties(text, *columns, topics)
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


@settings(deadline=None)
@given(data=st.data(), some=st.lists(records(), min_size=1, max_size=4))
def test_damage_never_leads_outside_the_buffer(data: st.DataObject, some: list[Record]) -> None:
    encoded = [bytearray(encode_record(record)) for record in some]
    starts = np.cumsum([0, *(len(each) for each in encoded[:-1])]).astype(np.int64)
    for each in encoded:
        position = data.draw(st.integers(8, len(each) - 1))  # the head has been looked at before
        each[position] ^= data.draw(st.integers(1, 255))

    sound = sound_structure(read_columns(b"".join(encoded), starts))

    assert len(sound) == len(some)
