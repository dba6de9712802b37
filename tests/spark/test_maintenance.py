"""A lake that Spark writes and reads, with maintenance between, beside and after its batches."""

from __future__ import annotations

import shutil
import threading
from datetime import date
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from eruca.exporting.columns import COLUMNS
from eruca.exporting.exported import Exported
from eruca_spark.export import run_export, waiting_rows
from eruca_spark.failures import reason_of
from eruca_spark.lake import Lake, Manifest, chain_faults, read_lake
from eruca_spark.lake_files import LakeBusyError
from eruca_spark.maintenance.folders import LocalFolders
from eruca_spark.maintenance.running import Maintained, Maintenance
from eruca_spark.reports.audit import audit_report, without_stranded
from support.export_service import ExportService
from support.spark import LAKE_DDL, files_of, raw_offsets

TODAY = date(2026, 11, 22)  # the day after that of the service's messages


def export(spark: SparkSession, service: ExportService, lake: Path, **options: str) -> Exported:
    given = {"url": service.url, "topic": "orders", "retrySeconds": "5", **options}
    return run_export(spark, str(lake), given)


def maintain(lake: Path, keep_days: int | None = None) -> Maintained:
    folders = LocalFolders(lake)
    with folders.maintaining():
        return Maintenance(folders).run(1_000_000, keep_days=keep_days, today=TODAY)


def queue_rows(spark: SparkSession, lake: Path) -> list[tuple[object, ...]]:
    rows = without_stranded(read_lake(spark, str(lake)))
    [queues] = [one for one in audit_report(rows).tables if one.name == "queues"]
    return [
        (row["queue_id"], row["messages"], row["missing"], row["duplicates"])
        for row in queues.rows.collect()
    ]


def test_an_export_goes_on_after_a_maintenance(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 500, 1: 100})
    export(spark, service, tmp_path, maxRowsPerTrigger="100")
    columns = ["queue_id", "queue_offset", "stored_at", "keys", "properties", "body"]
    before = read_lake(spark, str(tmp_path)).select(*columns).orderBy(*columns[:2]).collect()
    given = {"url": service.url, "topic": "orders"}

    done = maintain(tmp_path)

    assert (done.new_files, done.merged_rows) == (1, 600)
    after = read_lake(spark, str(tmp_path)).select(*columns).orderBy(*columns[:2]).collect()
    assert after == before
    assert spark.read.parquet(str(tmp_path)).count() == 600
    assert waiting_rows(Lake(spark, str(tmp_path)), given) == 0
    service.hold("orders", {0: 550, 1: 100})
    assert export(spark, service, tmp_path).rows == 50
    assert raw_offsets(tmp_path) == sorted(
        ("orders", "broker-a", queue, offset)
        for queue, size in ((0, 550), (1, 100))
        for offset in range(size)
    )
    assert chain_faults(Lake(spark, str(tmp_path)).manifests()) == []
    assert queue_rows(spark, tmp_path) == [(0, 550, 0, 0), (1, 100, 0, 0)]
    assert read_lake(spark, str(tmp_path)).columns == [*COLUMNS, "dt", "batch"]


def test_an_audit_finds_no_fault_after_a_day_has_expired(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    export(spark, service.hold("orders", {0: 40}), tmp_path)
    assert maintain(tmp_path, keep_days=0).dropped_rows == 40
    assert read_lake(spark, str(tmp_path)).count() == 0

    service.hold("orders", {0: 70})
    assert export(spark, service, tmp_path).rows == 30

    manifests = Lake(spark, str(tmp_path)).manifests()
    assert chain_faults(manifests) == []
    assert sum(one.rows - one.dropped_rows for one in manifests) == 30
    assert queue_rows(spark, tmp_path) == [(0, 30, 0, 0)]


def test_a_damaged_message_that_outlives_its_day_is_no_gap(spark: SparkSession) -> None:
    names = [part.split()[0] for part in LAKE_DDL.replace(", STRING>", ">").split(", ")]
    rows = [
        {"topic": "orders", "broker_name": "a", "queue_id": 0, "queue_offset": offset, "damage": d}
        for offset, d in ((3, "crc"), (10, None), (11, "crc"), (12, None))
    ]
    frame = spark.createDataFrame([tuple(row.get(n) for n in names) for row in rows], LAKE_DDL)

    kept = without_stranded(frame).select("queue_offset").orderBy("queue_offset").collect()
    assert [row[0] for row in kept] == [10, 11, 12]


def test_a_checkpoint_that_is_older_than_the_maintenance_repeats_no_row(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    lake, copy = tmp_path / "lake", tmp_path / "copy"
    service.hold("orders", {0: 100})
    export(spark, service, lake, maxRowsPerTrigger="20")
    shutil.copytree(lake / "_checkpoint", copy)
    service.hold("orders", {0: 200})
    export(spark, service, lake, maxRowsPerTrigger="20")
    maintain(lake)
    # The checkpoint has the batches up to the third; the manifests stand for several at once.
    for number in range(3, 10):
        for folder in ("offsets", "commits"):
            for name in (f"{number}", f".{number}.crc"):
                (lake / "_checkpoint" / folder / name).unlink(missing_ok=True)

    assert export(spark, service, lake, maxRowsPerTrigger="20").rows == 0
    assert raw_offsets(lake) == [("orders", "broker-a", 0, offset) for offset in range(200)]

    shutil.rmtree(lake / "_checkpoint")
    with pytest.raises(PySparkException) as caught:
        export(spark, service, lake)
    assert "another batch 0, from a deleted checkpoint" in reason_of(caught.value)


def test_no_file_is_replaced_between_the_manifests_and_the_list_of_a_reader(
    spark: SparkSession, service: ExportService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merged file would be in the directory of a batch that the reader does not know yet."""
    export(spark, service.hold("orders", {0: 100}), tmp_path, maxRowsPerTrigger="50")
    manifests = Lake.manifests
    refused: list[LakeBusyError] = []

    def and_then_more(self: Lake) -> list[Manifest]:
        found = manifests(self)
        monkeypatch.undo()
        export(spark, service.hold("orders", {0: 150}), tmp_path)
        try:
            maintain(tmp_path)
        except LakeBusyError as error:
            refused.append(error)
        return found

    monkeypatch.setattr(Lake, "manifests", and_then_more)

    assert read_lake(spark, str(tmp_path)).count() == 100
    assert len(refused) == 1
    assert maintain(tmp_path).merged_rows == 150
    assert read_lake(spark, str(tmp_path)).count() == 150


def test_a_batch_waits_for_the_exchange_of_a_partition(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 100})
    export(spark, service, tmp_path, maxRowsPerTrigger="50")
    is_written = threading.Event()

    def write() -> None:
        export(spark, service.hold("orders", {0: 150}), tmp_path)
        is_written.set()

    folders = LocalFolders(tmp_path)
    with folders.writing():
        thread = threading.Thread(target=write)
        thread.start()
        offset = tmp_path / "_checkpoint" / "offsets" / "2"
        while not offset.exists():
            thread.join(0.05)
        assert not is_written.is_set()
        assert len(files_of(tmp_path)) == 2
    thread.join()
    assert read_lake(spark, str(tmp_path)).agg(f.countDistinct("queue_offset")).first() == (150,)
