"""Rows of an export: column by column what reading each record by itself gives."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.contract.exports import EXPORT_COLUMNS
from eruca.contract.message_ids import encode_offset_id
from eruca.contract.records import (
    DamagedRecordError,
    Host,
    Record,
    SysFlag,
    encode_record,
)
from eruca.core.messages.body_codecs import UNPACKED_SIZE_MAX
from eruca.rows.arrow_schema import EXPORT_ARROW_SCHEMA
from eruca.rows.bodies import BATCH_UNPACKED_SIZE_MAX
from eruca.rows.property_columns import COLUMN_PROPERTIES
from eruca_query.exports.rows import pulled_rows
from eruca_query.exports.rows.blocks import Block
from support.export_rows import expected_row
from support.records import RECORDS, example_record

ALL = [column.name for column in EXPORT_COLUMNS]


def block_of(encoded: Sequence[bytes], from_offset: int = 0) -> Block:
    """Return records as a broker would send them, their queue offsets counted up."""
    numbered = [
        raw[:20] + (from_offset + n).to_bytes(8, "big") + raw[28:] for n, raw in enumerate(encoded)
    ]
    sizes = np.array([len(raw) for raw in numbered], np.int64)
    return Block("broker-a", 0, from_offset, sizes, memoryview(b"".join(numbered)))


def batches_of(encoded: Sequence[bytes], columns: Sequence[str] = ALL) -> list[pa.RecordBatch]:
    batches, offset = [], 0
    while offset < len(encoded):
        rows = pulled_rows.rows_of(block_of(encoded[offset:], offset), "orders", columns)
        batches.append(rows.batch())
        assert batches[-1].num_rows == rows.count
        offset += rows.count
    return batches


def rows_of(encoded: Sequence[bytes], columns: Sequence[str] = ALL) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in batches_of(encoded, columns):
        batch.validate(full=True)
        rows += batch.to_pylist()
    return [row | {"properties": dict(row["properties"])} for row in rows]


def expected_rows(encoded: Sequence[bytes]) -> list[dict[str, Any]]:
    return [expected_row(raw) | {"queue_offset": offset} for offset, raw in enumerate(encoded)]


@given(st.lists(RECORDS, min_size=1, max_size=12))
def test_each_row_tells_what_its_record_does(records: list[Record]) -> None:
    encoded = [encode_record(record) for record in records]

    assert rows_of(encoded) == expected_rows(encoded)


TEXT_PIECES = st.sampled_from(
    [
        *(b"\x01", b"\x02", b"a", b" ", b"\0", b"\xff", "ü".encode(), b"\xed\xa0\x80"),
        *(name.encode() for name in COLUMN_PROPERTIES),
    ]
)


@given(st.lists(st.lists(TEXT_PIECES, max_size=12).map(b"".join), min_size=1, max_size=6))
@settings(max_examples=200)
def test_properties_are_read_as_every_reader_does_however_they_are_written(
    texts: list[bytes],
) -> None:
    plain = encode_record(Record("orders", b"body"))
    encoded = [
        (len(plain) + len(text)).to_bytes(4, "big")
        + plain[4:-2]
        + len(text).to_bytes(2, "big")
        + text
        for text in texts
    ]

    assert rows_of(encoded) == expected_rows(encoded)


@given(st.lists(st.integers(0, 80), min_size=1, max_size=120, unique=True), st.integers(0, 80))
def test_many_names_are_told_apart_and_a_name_twice_counts_once(
    names: list[int], twice: int
) -> None:
    text = "".join(f"name-{number}\x01{place}\x02" for place, number in enumerate([*names, twice]))
    encoded = [
        encode_record(Record("orders", b"body", properties=text)),
        encode_record(Record("orders", b"body", properties="name-0\x01x\x02")),
    ]

    assert rows_of(encoded) == expected_rows(encoded)


@pytest.mark.parametrize("name", ALL)
def test_a_column_is_the_same_alone_as_among_the_others(name: str) -> None:
    encoded = [encode_record(example_record(body=bytes([n]))) for n in range(5)]

    (alone,) = batches_of(encoded, [name])
    (among_others,) = batches_of(encoded)

    assert alone.schema.field(0).equals(EXPORT_ARROW_SCHEMA.field(name))
    assert alone.column(0).equals(among_others.column(name))


def compressed(body: bytes, kind: str) -> tuple[bytes, int]:
    flags = {
        "zlib": int(SysFlag.COMPRESSION_ZLIB),
        "lz4": int(SysFlag.COMPRESSION_LZ4),
        "zstd": int(SysFlag.COMPRESSION_ZSTD),
    }
    if kind == "old zlib":
        return zlib.compress(body), int(SysFlag.COMPRESSED)
    if kind == "zlib":
        return zlib.compress(body), int(SysFlag.COMPRESSED) | flags[kind]
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, kind) as stream:
        stream.write(body)
    return sink.getvalue().to_pybytes(), int(SysFlag.COMPRESSED) | flags[kind]


@pytest.mark.parametrize("kind", ["old zlib", "zlib", "lz4", "zstd"])
def test_a_compressed_body_is_unpacked_and_its_flag_says_so(kind: str) -> None:
    packed, flags = compressed(b"a body " * 999, kind)
    other_flag = int(SysFlag.MULTI_TAGS)
    encoded = [
        encode_record(Record("orders", b"plain")),
        encode_record(Record("orders", packed, sys_flag=flags | other_flag)),
        encode_record(Record("orders", b"plain as well")),
    ]

    rows = rows_of(encoded)

    assert [row["body"] for row in rows] == [b"plain", b"a body " * 999, b"plain as well"]
    assert [row["sys_flag"] for row in rows] == [0, other_flag, 0]


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
@pytest.mark.parametrize("fault", ["cut", "not compressed", "of a size beyond all limits"])
def test_a_body_that_does_not_unpack_stays_as_it_is_and_its_flag_says_so(
    kind: str, fault: str
) -> None:
    body = bytes(UNPACKED_SIZE_MAX + 1) if fault.startswith("of a size") else b"a body" * 99
    packed, flags = compressed(body, kind)
    if fault == "cut":
        packed = packed[: len(packed) // 2]
    elif fault == "not compressed":
        packed = b"a body"

    (row,) = rows_of([encode_record(Record("orders", packed, sys_flag=flags))])

    assert row["body"] == packed
    assert row["sys_flag"] == flags


def test_a_compression_nobody_knows_is_left_alone() -> None:
    flags = int(SysFlag.COMPRESSED) | 0x400

    (row,) = rows_of([encode_record(Record("orders", b"a body", sys_flag=flags))])

    assert (row["body"], row["sys_flag"]) == (b"a body", flags)


def test_a_batch_ends_where_its_bodies_have_grown_large_and_nothing_is_left_out() -> None:
    packed, flags = compressed(bytes(BATCH_UNPACKED_SIZE_MAX // 2), "zlib")
    encoded = [
        encode_record(Record("orders", packed, queue_offset=n, sys_flag=flags)) for n in range(5)
    ] + [encode_record(Record("orders", b"plain", queue_offset=5))]

    batches = batches_of(encoded, ["body", "queue_offset"])

    assert [batch.column("queue_offset").to_pylist() for batch in batches] == [
        [0, 1], [2, 3], [4, 5],
    ]  # fmt: skip
    assert batches[2].column("body").to_pylist() == [bytes(BATCH_UNPACKED_SIZE_MAX // 2), b"plain"]


def test_messages_of_several_store_hosts_have_the_ids_of_theirs() -> None:
    hosts = ["10.0.0.1", "10.0.0.2", "2001:db8::1", "10.0.0.1"]
    encoded = [
        encode_record(Record("orders", b"body", log_offset=n, store_host=Host.parse(host, 10_911)))
        for n, host in enumerate(hosts)
    ]

    assert [row["offset_message_id"] for row in rows_of(encoded)] == [
        encode_offset_id(Host.parse(host, 10_911), n) for n, host in enumerate(hosts)
    ]


def test_an_offset_that_is_not_the_next_one_is_noticed() -> None:
    block = block_of([encode_record(Record("orders", b"body"))] * 3, from_offset=7)
    other = Block("broker-a", 0, 8, block.sizes, block.records)

    with pytest.raises(DamagedRecordError, match="expected queue offset 8, found 7"):
        pulled_rows.rows_of(other, "orders", ALL)


@given(st.data())
@settings(max_examples=150)
def test_damage_is_noticed_or_harmless(data: st.DataObject) -> None:
    """Nothing that a broker could send leads outside the block, or to a batch that is not valid."""
    whole = block_of([encode_record(example_record(body=bytes(n))) for n in range(3)])
    octets = bytearray(whole.records)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(octets) - 1))
        octets[place] = data.draw(st.integers(0, 255))
    damaged = Block("broker-a", 0, 0, whole.sizes, memoryview(bytes(octets)))

    try:
        batch = pulled_rows.rows_of(damaged, "orders", ALL).batch()
    except DamagedRecordError:
        return

    batch.validate(full=True)
    assert batch.num_rows == 3


@pytest.mark.parametrize("sizes", [[1], [91, 1], [10_000], [2**62, 2**62], [-1, 92]])
def test_sizes_that_are_not_those_of_the_records_are_refused(sizes: list[int]) -> None:
    record = memoryview(encode_record(Record("", b"")))
    block = Block("broker-a", 0, 0, np.array(sizes, np.int64), record)

    with pytest.raises(DamagedRecordError):
        pulled_rows.rows_of(block, "orders", ALL)
