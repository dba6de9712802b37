"""Merged Parquet files: rows in order, types and statistics of the export, bounded memory."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eruca_spark.lake import LakeError
from eruca_spark.maintenance import merging
from eruca_spark.maintenance.merging import merge_files
from support.small_lakes import SCHEMA, rows_of

DAY = "2026-11-27"
MIB = 1024 * 1024


def written(path: Path, table: pa.Table, **options: object) -> Path:
    pq.write_table(table, path, store_schema=False, **options)
    return path


def test_rows_stay_in_order_and_keep_their_types(tmp_path: Path) -> None:
    sources = [
        written(tmp_path / f"{start}.parquet", rows_of(DAY, range(start, start + 10)))
        for start in (0, 10, 20)
    ]

    assert merge_files(sources, tmp_path / "merged.parquet") == 30

    file = pq.ParquetFile(tmp_path / "merged.parquet")
    assert file.read().equals(rows_of(DAY, range(30)))
    assert file.schema_arrow.equals(SCHEMA)
    assert file.schema.equals(pq.ParquetFile(sources[0]).schema)


def test_times_are_microseconds_in_utc_with_statistics(tmp_path: Path) -> None:
    """Files of earlier versions have INT96 times, without statistics."""
    old, new = rows_of(DAY, range(10)), rows_of(DAY, range(10, 20))
    sources = [
        written(tmp_path / "old.parquet", old, use_deprecated_int96_timestamps=True),
        written(tmp_path / "new.parquet", new),
    ]
    merge_files(sources, tmp_path / "merged.parquet")

    file = pq.ParquetFile(tmp_path / "merged.parquet")
    assert file.read().equals(rows_of(DAY, range(20)))
    column = file.metadata.row_group(0).column(file.schema_arrow.names.index("stored_at"))
    assert column.statistics.min == datetime(2026, 11, 27, tzinfo=UTC)
    assert column.statistics.max == datetime(2026, 11, 27, 0, 0, 19, tzinfo=UTC)


def test_a_column_that_was_added_later_is_null_in_earlier_rows(tmp_path: Path) -> None:
    sources = [
        written(tmp_path / "old.parquet", rows_of(DAY, range(5)).drop_columns(["flag"])),
        written(tmp_path / "new.parquet", rows_of(DAY, range(5, 9), flag=[1, 2, 3, 4])),
    ]
    merge_files(sources, tmp_path / "merged.parquet")

    merged = pq.ParquetFile(tmp_path / "merged.parquet").read()
    assert merged.column("flag").to_pylist() == [None] * 5 + [1, 2, 3, 4]
    assert merged.schema.equals(SCHEMA)


def test_a_column_of_two_types_is_refused(tmp_path: Path) -> None:
    rows = rows_of(DAY, range(5))
    number = rows.schema.get_field_index("flag")
    other = rows.set_column(number, "flag", pa.array(["1"] * 5))
    sources = [written(tmp_path / "a.parquet", rows), written(tmp_path / "b.parquet", other)]

    with pytest.raises(LakeError, match=r"cannot merge .*flag"):
        merge_files(sources, tmp_path / "merged.parquet")


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")

    with pytest.raises(LakeError, match=r"unreadable file of the lake: .*cut\.parquet"):
        merge_files([tmp_path / "cut.parquet"], tmp_path / "merged.parquet")


@pytest.mark.parametrize("is_merged_before", [False, True])
def test_times_without_a_zone_stay_without_one(tmp_path: Path, *, is_merged_before: bool) -> None:
    """Earlier versions gave them the zone UTC when they merged."""
    times = [datetime(2026, 11, 27, 8, number) for number in range(4)]  # noqa: DTZ001
    rows = rows_of(DAY, range(2)).append_column("body_at", pa.array(times[:2], pa.timestamp("us")))
    more = rows_of(DAY, range(2, 4)).append_column(
        "body_at", pa.array(times[2:], pa.timestamp("us"))
    )
    if is_merged_before:
        number = rows.schema.get_field_index("body_at")
        utc = rows.column(number).cast(pa.timestamp("us", tz="UTC"))
        rows = rows.set_column(number, "body_at", utc)
    sources = [written(tmp_path / "a.parquet", rows), written(tmp_path / "b.parquet", more)]

    merge_files(sources, tmp_path / "merged.parquet")

    merged = pq.ParquetFile(tmp_path / "merged.parquet").read()
    assert merged.schema.field("body_at").type == pa.timestamp("us")
    assert merged.schema.field("stored_at").type == pa.timestamp("us", tz="UTC")
    assert merged.column("body_at").to_pylist() == times


def test_memory_does_not_grow_with_the_size_of_bodies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "ROW_GROUP_BYTES", 4 * MIB)
    monkeypatch.setattr(merging, "_BATCH_BYTES", MIB)
    sources = []
    for start in range(0, 600, 300):
        bodies = [bytes([number % 251]) * 100_000 for number in range(start, start + 300)]
        rows = rows_of(DAY, range(start, start + 300), body=bodies)
        options = {"use_dictionary": False, "write_batch_size": 8}  # pages of 800 kB
        path = written(tmp_path / f"{start}.parquet", rows, **options)
        sources.append(path)
    del rows, bodies
    before = pa.total_allocated_bytes()
    peaks = [before]
    fitted = merging._fitted

    def noted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        peaks.append(pa.total_allocated_bytes())
        return fitted(batch, schema)

    monkeypatch.setattr(merging, "_fitted", noted)

    assert merge_files(sources, tmp_path / "merged.parquet") == 600

    assert max(peaks) - before < 20 * MIB
    merged = pq.ParquetFile(tmp_path / "merged.parquet")
    assert merged.read(["queue_offset"]).column(0).to_pylist() == [*range(600)]


def test_memory_is_bounded_by_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "ROW_GROUP_BYTES", 4_000)
    sources = [
        written(tmp_path / f"{start}.parquet", rows_of(DAY, range(start, start + 100)))
        for start in range(0, 400, 100)
    ]
    merge_files(sources, tmp_path / "merged.parquet")

    file = pq.ParquetFile(tmp_path / "merged.parquet")
    assert file.metadata.num_row_groups == 4
    assert file.read(["queue_offset"]).column(0).to_pylist() == [*range(400)]
