"""Parquet that the jobs write: the schema of ``eruca export``, and what Iceberg takes."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.types import TimestamptzType
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from rich.console import Console

from eruca.cli.exporting.files import FileFormat, write_file
from eruca.exporting.columns import COLUMNS, arrow_schema
from eruca.exporting.ranges import Queue, Range
from eruca_spark import parquet
from eruca_spark.compaction import latest_by_key, write_compacted
from eruca_spark.export import run_export
from eruca_spark.lake import read_lake
from eruca_spark.reports.basis import Lacks
from eruca_spark.reports.latency import latency_report
from eruca_spark.reports.page import Origin
from eruca_spark.reports.report import PageRequest, finish
from eruca_spark.reports.targets import Targets
from support.export_service import ExportService, batch_of
from support.spark import files_of

TIMES = ["stored_at", "born_at"]


def export(spark: SparkSession, service: ExportService, lake: Path) -> None:
    given = {"url": service.url, "topic": "orders", "retrySeconds": "5"}
    run_export(spark, str(lake), given)


def exported_by_the_command_line(directory: Path) -> pq.ParquetFile:
    """Return a file of the same rows that is written as ``eruca export`` writes it."""
    schema = arrow_schema(COLUMNS)
    batch = batch_of(Range(Queue("orders", "broker-a", 0), 0, 50), list(COLUMNS))
    part, target = directory / "part", directory / "orders.parquet"
    with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(batch)
    write_file(target, FileFormat.PARQUET, [part], 50, lambda _: None)
    return pq.ParquetFile(target)


def physical(file: pq.ParquetFile) -> dict[str, tuple[str, str, int, int]]:
    """Return how each leaf of a file is stored, by its path."""
    columns = (file.schema.column(number) for number in range(len(file.schema)))
    return {
        one.path: (
            one.physical_type,
            str(one.logical_type),
            one.max_definition_level,
            one.max_repetition_level,
        )
        for one in columns
    }


def without(name: str, schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != name])


def test_a_lake_and_an_exported_file_have_one_schema(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    """Names, types, nullability and time zone; the lake has the topic in its folders' names."""
    export(spark, service.hold("orders", {0: 50}), tmp_path / "lake")
    [path] = files_of(tmp_path / "lake")

    of_the_lake, of_the_export = pq.ParquetFile(path), exported_by_the_command_line(tmp_path)
    expected = without("topic", of_the_export.schema_arrow)
    assert without("topic", of_the_lake.schema_arrow).equals(expected)
    assert of_the_lake.schema_arrow.field("stored_at").type == pa.timestamp("us", tz="UTC")
    stored = physical(of_the_export)
    del stored["topic"]
    assert physical(of_the_lake) == stored


def test_times_have_statistics(spark: SparkSession, service: ExportService, tmp_path: Path) -> None:
    export(spark, service.hold("orders", {0: 50}), tmp_path)
    [path] = files_of(tmp_path)

    file = pq.ParquetFile(path)
    for number, name in enumerate(file.schema_arrow.names):
        if name in TIMES:
            column = file.metadata.row_group(0).column(number)
            assert column.statistics.has_min_max
            assert column.statistics.min == datetime(2026, 11, 21, tzinfo=UTC)


def test_a_lake_of_an_earlier_version_is_read_and_goes_on(
    spark: SparkSession,
    service: ExportService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first batch has INT96 times, its second one microseconds."""
    earlier = {**parquet.SETTINGS, "spark.sql.parquet.outputTimestampType": "INT96"}
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "SETTINGS", earlier)
        export(spark, service.hold("orders", {0: 40}), tmp_path)
    export(spark, service.hold("orders", {0: 50}), tmp_path)

    kinds = [physical(pq.ParquetFile(path))["stored_at"][0] for path in files_of(tmp_path)]
    assert sorted(kinds) == ["INT64", "INT96"]
    source = spark.read.format("eruca").options(url=service.url, topic="orders").load()
    columns = ["queue_offset", *TIMES]
    there, was = (
        frame.select(*columns).orderBy("queue_offset").collect()
        for frame in (read_lake(spark, str(tmp_path)), source)
    )
    assert there == was
    write_compacted(latest_by_key(read_lake(spark, str(tmp_path)), "key"), f"{tmp_path}/table")
    latest = spark.read.parquet(f"{tmp_path}/table")
    assert latest.agg(f.max("stored_at")).collect() == source.agg(f.max("stored_at")).collect()


def test_a_session_of_a_user_s_own_writes_the_same_and_keeps_its_settings(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    own.conf.set("spark.sql.parquet.outputTimestampType", "INT96")

    export(own, service.hold("orders", {0: 50}), tmp_path)
    write_compacted(latest_by_key(read_lake(own, str(tmp_path)), "key"), f"{tmp_path}/table")

    [path] = files_of(tmp_path)
    assert path.parents[1].name == "dt=2026-11-21"
    for one in (path, *(tmp_path / "table").glob("*/*.parquet")):
        assert pq.ParquetFile(one).schema_arrow.field("stored_at").type == pa.timestamp(
            "us", tz="UTC"
        )
    assert own.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert own.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"


def iceberg_schema(files: list[Path], name: str, directory: Path) -> dict[str, Any]:
    """Let Iceberg take *files* into a table as they are; return its types by column."""
    catalog = InMemoryCatalog("tests", warehouse=directory.as_uri())
    catalog.create_namespace("eruca")
    table = catalog.create_table(f"eruca.{name}", pq.ParquetFile(files[0]).schema_arrow)
    table.add_files([str(path) for path in files])
    rows = table.scan().to_arrow().num_rows
    assert rows == sum(pq.ParquetFile(path).metadata.num_rows for path in files)
    return {field.name: field.field_type for field in table.schema().fields}


def test_iceberg_takes_the_files_of_a_lake_a_compaction_and_a_report(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    export(spark, service.hold("orders", {0: 50, 1: 20}), tmp_path / "lake")
    messages = read_lake(spark, str(tmp_path / "lake"))
    write_compacted(latest_by_key(messages, "key"), f"{tmp_path}/table")
    report = latency_report(messages, None)
    origin = Origin("eruca-spark latency", service.url, datetime.now(UTC), "1")
    request = PageRequest(messages, ["orders"], Lacks(), origin)
    targets = Targets(tmp_path / "report")
    finished = finish(spark, report, targets, Console(file=io.StringIO()), request)

    lake = iceberg_schema(files_of(tmp_path / "lake"), "lake", tmp_path)
    table = iceberg_schema(list(tmp_path.glob("table/*/*.parquet")), "compacted", tmp_path)
    for types in (lake, table):
        assert [types[name] for name in TIMES] == [TimestamptzType(), TimestamptzType()]
    for name, path in finished.tables.items():
        iceberg_schema(list(path.glob("*.parquet")), name.replace("-", "_"), tmp_path)
