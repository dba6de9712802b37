"""Columns: what numpy reads off many records is what the codec reads off each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.contract.hashing import key_hash, string_hash, tags_code
from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, encode_properties, split_keys
from eruca.contract.records import Host, Record, SysFlag, encode_record
from eruca.core.messages.record_columns import (
    RecordColumns,
    TopicColumn,
    read_columns,
    sound_structure,
)
from eruca_broker.core.properties.hashes import (
    PropertyHashes,
    hash_properties,
    index_hashes,
    tag_and_keys,
)

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


def hashes_of(columns: RecordColumns) -> PropertyHashes:
    return hash_properties(columns.buffer, columns.properties_starts, columns.properties_sizes)


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
@given(st.lists(records(), min_size=1, max_size=8))
def test_hashes_are_those_of_the_tag_and_of_each_key(some: list[Record]) -> None:
    hashes = hashes_of(columns_of(some))

    for row, record in enumerate(some):
        assert hashes.tag_codes[row] == tags_code(expected_tag(record))
        mine = hashes.key_rows == row
        prefix = np.full(int(mine.sum()), string_hash(f"{record.topic}#") & 0xFFFF_FFFF, np.uint32)
        found = index_hashes(prefix, hashes.key_hashes[mine], hashes.key_sizes[mine])
        assert found.tolist() == [key_hash(record.topic, key) for key in expected_keys(record)]


@settings(deadline=None, max_examples=150)
@given(data=st.data(), count=st.integers(17, 40))
def test_texts_of_one_shape_hash_like_any_other(data: st.DataObject, count: int) -> None:
    shape = data.draw(st.lists(st.sampled_from([TAGS, KEYS, UNIQ_KEY, "u"]), unique=True))
    width = data.draw(st.integers(1, 40))
    plain = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=width)
    some = [
        Record(
            topic="t",
            body=b"x",
            properties=encode_properties({name: data.draw(plain)[:width] for name in shape}),
        )
        for _ in range(count)
    ]
    odd = data.draw(st.one_of(st.none(), records()))
    if odd is not None:
        some[data.draw(st.integers(0, count - 1))] = odd

    hashes = hashes_of(columns_of(some))

    for row, record in enumerate(some):
        assert hashes.tag_codes[row] == tags_code(expected_tag(record))
        mine = hashes.key_rows == row
        assert hashes.key_hashes[mine].tolist() == [
            string_hash(key) & 0xFFFF_FFFF for key in expected_keys(record)
        ]


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

    hashes = hashes_of(columns_of([record]))

    assert hashes.tag_codes[0] == tags_code(expected_tag(record))
    assert hashes.key_hashes.tolist() == [string_hash(key) for key in expected_keys(record)]


def test_records_without_properties_have_no_keys() -> None:
    hashes = hashes_of(columns_of([Record(topic="t", body=b"x")] * 3))

    assert hashes.tag_codes.tolist() == [0, 0, 0]
    assert len(hashes.key_rows) == 0


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
