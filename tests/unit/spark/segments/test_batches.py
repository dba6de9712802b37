"""Rows of a segment: those that reading each record by itself gives."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.exports import EXPORT_COLUMNS
from eruca.contract.records import Record, SysFlag, decode_record
from eruca.exporting.columns import arrow_schema
from eruca.exporting.ranges import Queue
from eruca.rows import bodies
from pyspark_eruca_segments.batches import batches_of, damaged_row
from pyspark_eruca_segments.selection import Selection
from pyspark_eruca_segments.walk import Damaged
from support.export_rows import expected_row
from support.laid_segments import LOGS, laid, walked

ALL = [column.name for column in EXPORT_COLUMNS]
EVERYTHING = {"orders": 0, "rare": 0, "%RETRY%billing": 0, "t" * 200: 0}


def rows_of(
    segment: bytes, base: int, selection: Selection, columns: Sequence[str] = ALL
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for part in walked(segment, base, window=500):
        assert not isinstance(part, Damaged)
        for batch in batches_of(part, selection, columns):
            batch.validate(full=True)
            assert batch.schema.equals(arrow_schema(columns))
            rows += batch.to_pylist()
    return [row | {"properties": dict(row["properties"])} for row in rows]


def expected(encoded: Sequence[bytes]) -> list[tuple[Record, dict[str, Any]]]:
    found = []
    for raw in encoded:
        record = decode_record(raw)
        row = expected_row(raw, record.topic)
        row["properties"].pop("__CRC32#", None)
        found.append((record, row))
    return found


def is_queued(record: Record) -> bool:
    return not record.sys_flag & SysFlag.PREPARED


@given(LOGS, st.sets(st.sampled_from(sorted(EVERYTHING)), min_size=1), st.integers(0, 2_000))
def test_each_row_tells_what_its_record_does(
    records: list[tuple[Record, bool]], topics: set[str], since: int
) -> None:
    segment, encoded = laid(records, 2**30)
    selection = Selection("broker-a", dict.fromkeys(topics, 2**30 + since))

    assert rows_of(segment, 2**30, selection) == [
        row
        for record, row in expected(encoded)
        if record.topic in topics and record.log_offset >= 2**30 + since and is_queued(record)
    ]


@given(LOGS, st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63))
def test_times_choose_rows(records: list[tuple[Record, bool]], first: int, size: int) -> None:
    segment, encoded = laid(records, 0)
    last = min(first + size, 2**63 - 1)
    selection = Selection("broker-a", EVERYTHING, starting_ms=first, ending_ms=last)

    assert rows_of(segment, 0, selection) == [
        row
        for record, row in expected(encoded)
        if first <= record.store_timestamp < last and is_queued(record)
    ]


@given(LOGS, st.integers(0, 2**40), st.integers(0, 2**40))
def test_offsets_choose_rows_of_their_queue_only(
    records: list[tuple[Record, bool]], start: int, end: int
) -> None:
    segment, encoded = laid(records, 0)
    selection = Selection(
        "broker-a",
        EVERYTHING,
        starts=((Queue("orders", "broker-a", 0), start), (Queue("rare", "broker-b", 0), 2**60)),
        ends=((Queue("orders", "broker-a", 1), end),),
    )

    def is_wanted(record: Record) -> bool:
        if record.topic != "orders":
            return True
        if record.queue_id == 0:
            return record.queue_offset >= start
        return record.queue_id != 1 or record.queue_offset < end

    assert rows_of(segment, 0, selection) == [
        row for record, row in expected(encoded) if is_wanted(record) and is_queued(record)
    ]


def test_compressed_bodies_are_unpacked_in_batches_that_stay_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "BATCH_UNPACKED_SIZE_MAX", 10_000)
    flag = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
    records = [
        (Record("orders", zlib.compress(bytes(6_000)), queue_offset=row, sys_flag=flag), True)
        for row in range(9)
    ]
    segment, _ = laid(records, 0)
    [part] = walked(segment, 0, window=len(segment))
    assert not isinstance(part, Damaged)

    batches = [*batches_of(part, Selection("broker-a", EVERYTHING), ALL)]

    assert [batch.num_rows for batch in batches] == [2, 2, 2, 2, 1]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["queue_offset"] for row in rows] == list(range(9))
    assert {row["body"] for row in rows} == {bytes(6_000)}
    assert {row["sys_flag"] for row in rows} == {0}


def test_only_the_columns_that_are_wanted_are_there() -> None:
    segment, _ = laid([(Record("orders", b"body", queue_offset=7), True)], 0)
    [part] = walked(segment, 0)
    assert not isinstance(part, Damaged)
    [batch] = batches_of(part, Selection("broker-a", EVERYTHING), ["body", "queue_offset"])

    assert batch.to_pylist() == [{"body": b"body", "queue_offset": 7}]


def test_the_row_of_a_damaged_part_says_where_it_is_and_nothing_else() -> None:
    row = damaged_row(Damaged(4_096, 300, "zeros"), Selection("broker-a", EVERYTHING), ALL)

    assert row.schema.equals(arrow_schema(ALL))
    assert {name: value for name, value in row.to_pylist()[0].items() if value is not None} == {
        "broker_name": "broker-a",
        "log_offset": 4_096,
        "size": 300,
        "damage": "zeros",
    }
