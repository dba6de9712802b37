"""Lakes that are divided by hour or by a property: written, maintained, read by others."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession

from eruca.exporting.columns import COLUMNS
from eruca.exporting.errors import OptionError
from eruca.exporting.ranges import Queue, Range
from eruca_spark import export as exporting
from eruca_spark.export import run_export
from eruca_spark.lake import Lake, Manifest, read_lake
from eruca_spark.layout import LAYOUT_FILE, Layout
from eruca_spark.maintenance.folders import LocalFolders
from eruca_spark.maintenance.running import Maintenance
from support.export_service import ExportService
from support.spark import files_of, raw_offsets

MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)
ODD = {
    "a/b=c%d": "a/b=c%d",
    "租户 一": "租户 一",
    "": None,
    None: None,
    "x" * 64: "x" * 64,
    "x" * 65: None,
}
OPEN_MAX = 50  # files that a task has open, in sessions of this package


def frame_of(spark: SparkSession, tenants: list[str | None]) -> DataFrame:
    """Return a message of each tenant, stored twenty minutes after each other."""
    fields = ["topic", "queue_offset", "stored_at", "properties", "damage"]
    rows = [
        (
            "orders",
            offset,
            MIDNIGHT + timedelta(minutes=20 * offset),
            {} if tenant is None else {"tenant": tenant},
            None,
        )
        for offset, tenant in enumerate(tenants)
    ]
    ddl = ", ".join(f"{name} {COLUMNS[name]}" for name in fields)
    return spark.createDataFrame(rows, ddl)


def manifest_of(lake: Lake) -> Manifest:
    """Return the manifest of a first batch of two rows."""
    return Manifest(
        batch=0,
        query_id="1b4e",
        schema_version=2,
        ranges=(Range(Queue("orders", "broker-a", 0), 0, 2),),
        rows=2,
        missing_rows=0,
        written_at="2026-11-21T08:00:00.000+00:00",
        files=lake.batch_files(0),
    )


def test_values_of_a_property_are_escaped_and_read_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, str(tmp_path))
    lake.layout = Layout.parse("topic,day,property:tenant")

    exporting._write(frame_of(spark, [*ODD]).coalesce(1), 0, lake)

    pattern = f"{tmp_path}/topic=*/**/*.parquet"
    query = "SELECT queue_offset, property_tenant FROM read_parquet(?, hive_partitioning = true)"
    with duckdb.connect() as connection:
        found = dict(connection.execute(query, [pattern]).fetchall())
    by_spark = spark.read.parquet(str(tmp_path)).select("queue_offset", "property_tenant")
    expected = dict(enumerate(ODD.values()))
    assert {row[0]: row[1] for row in by_spark.collect()} == expected
    assert found == expected
    assert len(lake.batch_files(0)) == 4


def test_values_that_look_like_numbers_stay_different_texts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By default readers guess that they are numbers; the documented recipes forbid it."""
    lake = Lake(spark, str(tmp_path))
    lake.layout = Layout.parse("topic,day,property:tenant")
    lake.files.write(LAYOUT_FILE, lake.layout.to_json())
    exporting._write(frame_of(spark, ["1", "01"]).coalesce(1), 0, lake)
    lake.finish(manifest_of(lake))

    pattern = f"{tmp_path}/topic=*/**/*.parquet"
    names = ["queue_offset", "property_tenant"]
    types = ds.partitioning(
        pa.schema(
            [
                ("topic", pa.string()),
                ("dt", pa.date32()),
                ("property_tenant", pa.string()),
                ("batch", pa.int32()),
            ]
        ),
        flavor="hive",
    )
    query = (
        "SELECT queue_offset, property_tenant FROM read_parquet(?, hive_partitioning = true,"
        " union_by_name = true, hive_types = {'property_tenant': VARCHAR})"
    )
    own = spark.newSession()
    own.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", False)
    with duckdb.connect() as connection:
        by_duckdb = connection.execute(query, [pattern]).fetchall()
    by_polars = pl.scan_parquet(
        pattern,
        hive_partitioning=True,
        hive_schema={
            "topic": pl.String,
            "dt": pl.Date,
            "property_tenant": pl.String,
            "batch": pl.Int32,
        },
        missing_columns="insert",
        extra_columns="ignore",
    )
    table = ds.dataset(tmp_path, format="parquet", partitioning=types).to_table(names)
    found: dict[str, Iterable[Any]] = {
        "read_lake": read_lake(spark, str(tmp_path)).select(*names).collect(),
        "Spark": own.read.parquet(str(tmp_path)).select(*names).collect(),
        "DuckDB": by_duckdb,
        "Polars": by_polars.select(names).collect().rows(),
        "pyarrow": [tuple(row[name] for name in names) for row in table.to_pylist()],
    }

    for name, rows in found.items():
        assert sorted(map(tuple, rows)) == [(0, "1"), (1, "01")], name
    guessed = spark.read.parquet(str(tmp_path)).select("property_tenant").distinct().collect()
    assert [row[0] for row in guessed] == [1]


def test_more_values_than_open_files_are_written(spark: SparkSession, tmp_path: Path) -> None:
    """Spark then sorts a task's rows and has one file open at a time."""
    assert int(spark.conf.get("spark.sql.maxConcurrentOutputFileWriters") or 0) == OPEN_MAX
    lake = Lake(spark, str(tmp_path))
    lake.layout = Layout.parse("topic,day,property:tenant")
    tenants: list[str | None] = [f"tenant-{number % 60}" for number in range(180)]

    written, *_ = exporting._write(frame_of(spark, tenants).coalesce(1), 0, lake)

    assert written == 180
    assert spark.read.parquet(str(tmp_path)).count() == 180
    values = {path.parents[1].name for path in files_of(tmp_path)}
    assert len(values) == 60


def test_a_lake_by_hour_is_exported_maintained_and_read(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    given = {"url": service.hold("orders", {0: 60}).url, "topic": "orders", "retrySeconds": "5"}
    by_hour = "topic,hour,property:colour"
    run_export(spark, str(tmp_path), given, partition_by=by_hour, target_file_mib=64)
    service.hold("orders", {0: 90})

    with pytest.raises(OptionError, match="divided by topic,hour,property:colour"):
        run_export(spark, str(tmp_path), given, partition_by="topic,day")
    assert run_export(spark, str(tmp_path), given).rows == 30

    names = {path.relative_to(tmp_path).parts[:4] for path in files_of(tmp_path)}
    assert names == {("topic=orders", "dt=2026-11-21", "hour=0", "property_colour=red")}
    folders = LocalFolders(tmp_path)
    assert Maintenance(folders).run(1_000_000, today=date(2026, 11, 22)).new_files == 1
    rows = read_lake(spark, str(tmp_path))
    assert rows.columns == [*COLUMNS, "dt", "hour", "property_colour", "batch"]
    assert rows.where("hour = 0 AND property_colour = 'red'").count() == 90
    assert [row[3] for row in raw_offsets(tmp_path)] == [*range(90)]

    done = Maintenance(folders).run(1_000_000, keep_days=0, today=date(2026, 11, 22))
    assert done.dropped_rows == 90
    assert [*tmp_path.glob("topic=*/*")] == []
    assert read_lake(spark, str(tmp_path)).columns == rows.columns
