"""Lakes that are divided by hour or by a property: written, maintained, read by others."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from eruca.exporting.columns import COLUMNS
from eruca.exporting.errors import OptionError
from eruca_spark import export as exporting
from eruca_spark.export import run_export
from eruca_spark.lake import Lake, read_lake
from eruca_spark.layout import Layout
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
