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
