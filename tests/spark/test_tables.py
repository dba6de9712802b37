"""Exports to Delta Lake and Iceberg: a commit for each batch, and each message once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eruca.exporting.errors import DataLossError
from eruca.exporting.exported import Exported
from eruca.exporting.ranges import Queue
from eruca.tables.batches import Batch, TableError
from eruca.tables.committing import ExportTable
from eruca.tables.files import DataFile
from eruca_spark.table_export import table_exporter
from support.command_line import Eruca
from support.export_service import ExportService
from support.tables import Kind, LocalTable


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LocalTable:
    kind: Kind = request.param
    return LocalTable(kind, tmp_path)


def export(
    spark: SparkSession,
    service: ExportService,
    table: ExportTable,
    **options: str,
) -> Exported:
    given = {"url": service.url, "topic": "orders", "retrySeconds": "5", **options}
    exporter = table_exporter(lambda: spark, table, given)
    exporter.run()
    return exporter.done


def offsets(sizes: dict[int, int], topic: str = "orders") -> list[tuple[str, str, int, int]]:
    return sorted(
        (topic, "broker-a", q, offset) for q, size in sizes.items() for offset in range(size)
    )


def test_each_batch_is_a_commit_and_the_next_run_continues(
    spark: SparkSession, service: ExportService, table: LocalTable
) -> None:
    service.hold("orders", {0: 900, 1: 100}).hold("%DLQ%billing", {0: 3})

    first = export(spark, service, table.opened(), maxRowsPerTrigger="400")
    assert (first.batches, first.rows, first.missing_rows) == (3, 1_000, 0)
    assert export(spark, service, table.opened()).batches == 0
    service.hold("orders", {0: 950, 2: 30})
    second = export(spark, service, table.opened(), topic="orders,%DLQ%billing")
    assert second.rows_by_topic == {"orders": 80, "%DLQ%billing": 3}

    expected = offsets({0: 950, 1: 100, 2: 30}) + offsets({0: 3}, "%DLQ%billing")
    assert table.offsets() == sorted(expected)
    assert table.commits() == 4
    last = table.opened().last_batch()
    assert last is not None
    assert (last.number, last.rows) == (3, 83)


def test_the_command_line_and_spark_continue_each_other_s_table(
    spark: SparkSession, service: ExportService, table: LocalTable
) -> None:
    def by_command(size: int) -> dict[str, object]:
        service.hold("orders", {0: size, 1: 5})
        words = ["export", "orders", "--to", table.target, "--query", service.url]
        for name, value in table.options.items():
            words += ["--table-option", f"{name}={value}"]
        done: dict[str, object] = Eruca("http://127.0.0.1:1").json(*words)
        return done

    assert by_command(100)["rows"] == 105
    service.hold("orders", {0: 200, 2: 7})
    assert export(spark, service, table.opened()).rows == 107
    assert by_command(250)["rows"] == 50
    assert export(spark, service, table.opened()).batches == 0

    assert table.offsets() == offsets({0: 250, 1: 5, 2: 7})
    last = table.opened().last_batch()
    assert last is not None
    assert last.number == 2


class Crashing:
    """A table whose commits fail as told: before or after the table has them."""

    def __init__(self, table: ExportTable, *, after: bool) -> None:
        self._table = table
        self._after = after
        self.has_crashed = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._table, name)

    def append(self, files: Sequence[DataFile], batch: Batch) -> None:
        """Commit, or do not, and die."""
        if self._after:
            self._table.append(files, batch)
        raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_around_the_commit_loses_and_doubles_nothing(
    spark: SparkSession, service: ExportService, table: LocalTable, after: bool
) -> None:
    service.hold("orders", {0: 100})
    with pytest.raises(KeyboardInterrupt):
        export(spark, service, Crashing(table.opened(), after=after))  # type: ignore[arg-type]
    assert len(table.offsets()) == (100 if after else 0)

    service.hold("orders", {0: 130})
    assert export(spark, service, table.opened()).rows == (30 if after else 130)
    assert table.offsets() == offsets({0: 130})
    assert table.commits() == (2 if after else 1)


def test_lost_messages_are_an_error_unless_they_are_allowed(
    spark: SparkSession, service: ExportService, table: LocalTable
) -> None:
    export(spark, service.hold("orders", {0: 100}), table.opened())
    service.create_again("orders", {0: 20})
    with pytest.raises(DataLossError, match="deleted and created again"):
        export(spark, service, table.opened())

    assert export(spark, service, table.opened(), failOnDataLoss="false").rows == 20
    assert len(table.offsets()) == 120


def test_a_truncated_log_is_noticed(
    spark: SparkSession, service: ExportService, table: LocalTable
) -> None:
    export(spark, service.hold("orders", {0: 100}), table.opened())
    service.queues[Queue("orders", "broker-a", 0)] = (0, 60)

    with pytest.raises(DataLossError, match="its log was truncated"):
        export(spark, service, table.opened())


def test_damaged_messages_are_counted_and_starts_hold(
    spark: SparkSession, service: ExportService, table: LocalTable
) -> None:
    service.hold("orders", {0: 40}).damaged = {(Queue("orders", "broker-a", 0), 17)}

    done = export(
        spark,
        service,
        table.opened(),
        damaged="mark",
        startingOffsets='{"orders/broker-a/0": 10}',
    )

    assert (done.rows, done.damaged_rows) == (30, 1)
    assert [row["queue_offset"] for row in table.rows().to_pylist() if row["damage"]] == [17]


class Elsewhere:
    """A table whose files Spark writes to another storage than the one that the driver reads."""

    def __init__(self, table: ExportTable, other: Path) -> None:
        self._table = table
        self.data = replace(table.data, uri=other.as_uri())

    def __getattr__(self, name: str) -> object:
        return getattr(self._table, name)


def test_files_that_the_driver_does_not_find_are_no_lost_messages(
    spark: SparkSession, service: ExportService, table: LocalTable, tmp_path: Path
) -> None:
    service.hold("orders", {0: 100})
    elsewhere: Any = Elsewhere(table.opened(), tmp_path / "elsewhere")

    with pytest.raises(TableError, match="expected 100 rows in the files of batch 0, found 0 in"):
        export(spark, service, elsewhere, failOnDataLoss="false")

    assert [*tmp_path.glob("elsewhere/**/*.parquet")]
    assert (table.commits(), table.offsets()) == (0, [])
    assert export(spark, service, table.opened()).rows == 100
