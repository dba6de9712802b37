"""The export: each message once in the lake, whatever a run before it left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from typer.testing import CliRunner, Result

from eruca.exporting.columns import COLUMNS
from eruca.exporting.errors import OptionError, SourceError
from eruca.exporting.exported import Exported
from eruca.exporting.ranges import Queue
from eruca_spark.export import finds_nothing, run_export, waiting_rows
from eruca_spark.failures import reason_of
from eruca_spark.lake import Lake, chain_faults, read_lake
from eruca_spark.lake_files import LakeBusyError, LocalFiles
from eruca_spark.main import app
from support.export_service import ExportService, Fault, Refusal
from support.spark import files_of, planners, raw_offsets, readers, until_none


def export(spark: SparkSession, service: ExportService, lake: Path, **options: str) -> Exported:
    given = {"url": service.url, "topic": "orders", "retrySeconds": "5", **options}
    return run_export(spark, str(lake), given)


def offsets(topic: str, sizes: dict[int, int]) -> list[tuple[str, str, int, int]]:
    return sorted(
        (topic, "broker-a", queue_id, offset)
        for queue_id, size in sizes.items()
        for offset in range(size)
    )


def forget_commit(lake: Path, batch: int) -> None:
    """Leave a lake as a kill does that comes after the batch and before Spark's commit."""
    for name in (str(batch), f".{batch}.crc"):
        (lake / "_checkpoint" / "commits" / name).unlink()


def test_a_run_exports_what_is_there_and_the_next_one_what_is_new(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 900, 1: 100})

    first = export(spark, service, tmp_path, maxRowsPerTrigger="400")
    assert (first.batches, first.rows, first.missing_rows) == (3, 1_000, 0)
    assert export(spark, service, tmp_path).batches == 0
    service.hold("orders", {0: 950, 2: 30})
    assert export(spark, service, tmp_path).rows == 80

    assert raw_offsets(tmp_path) == offsets("orders", {0: 950, 1: 100, 2: 30})
    manifests = Lake(spark, str(tmp_path)).manifests()
    assert [manifest.rows for manifest in manifests] == [400, 400, 200, 80]
    assert chain_faults(manifests) == []
    assert read_lake(spark, str(tmp_path)).count() == 1_080


def test_rows_come_back_as_they_were_in_folders_of_topic_and_day(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 5}).hold("%DLQ%billing", {3: 2})
    export(spark, service, tmp_path, topic="orders,%DLQ%billing")

    rows = read_lake(spark, str(tmp_path))
    source = spark.read.format("eruca").options(url=service.url, topic="orders,%DLQ%billing").load()
    assert rows.columns == [*COLUMNS, "dt", "batch"]
    there, was = (frame.select(*COLUMNS).collect() for frame in (rows, source))
    assert len(there) == 7
    assert sorted(there, key=place_of) == sorted(was, key=place_of)
    assert {path.parents[2].name for path in files_of(tmp_path)} == {
        "topic=orders",
        "topic=%25DLQ%25billing",
    }
    assert {path.parents[1].name for path in files_of(tmp_path)} == {"dt=2026-11-21"}


def place_of(row: Row) -> tuple[str, int, int]:
    return row["topic"], row["queue_id"], row["queue_offset"]


def test_a_small_batch_is_one_file_a_topic_and_day(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    export(spark, service.hold("orders", dict.fromkeys(range(8), 50)), tmp_path)

    assert len(files_of(tmp_path)) == 1


def test_a_topic_that_is_added_later_is_exported_whole(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 10}).hold("payments", {0: 20})
    export(spark, service, tmp_path)

    assert export(spark, service, tmp_path, topic="orders,payments").rows == 20
    assert raw_offsets(tmp_path) == offsets("orders", {0: 10}) + offsets("payments", {0: 20})


def test_nothing_to_export_leaves_an_empty_lake(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    assert export(spark, service.hold("orders", {0: 0}), tmp_path).rows == 0

    assert raw_offsets(tmp_path) == []
    assert read_lake(spark, str(tmp_path)).count() == 0


def test_a_run_that_finds_nothing_new_starts_no_spark(
    spark: SparkSession,
    service: ExportService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    export(spark, service.hold("orders", {0: 10, 1: 5}), tmp_path, maxRowsPerTrigger="8")
    monkeypatch.delattr("eruca_spark.export_command.interruptible_session")

    def again(topic: str, *more: str) -> Result:
        words = ["export", str(tmp_path), "--topic", topic, "--url", service.url, *more]
        return CliRunner().invoke(app, words)

    done = again("orders")
    divided = again("orders", "--partition-by", "topic,hour")
    service.hold("invoices", {0: 1})
    of_another = again("invoices")

    assert (done.exit_code, done.output) == (0, f"{tmp_path} has 15 messages in 2 batches\n")
    assert isinstance(divided.exception, OptionError)
    assert isinstance(of_another.exception, SourceError)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_run_with_a_batch_under_way_or_new_messages_needs_spark(
    spark: SparkSession, service: ExportService, tmp_path: Path, is_committed: bool
) -> None:
    export(spark, service.hold("orders", {0: 10}), tmp_path)
    given = {"url": service.url, "topic": "orders"}
    before = finds_nothing(Lake(None, str(tmp_path)), given)
    if is_committed:
        service.hold("orders", {0: 11})
    else:
        forget_commit(tmp_path, 0)

    assert before
    assert not finds_nothing(Lake(None, str(tmp_path)), given)


def test_a_batch_killed_before_its_manifest_is_written_again(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    """Files of the broken-off attempt lie in other folders, too: a day that has changed."""
    export(spark, service.hold("orders", {0: 100}), tmp_path)
    forget_commit(tmp_path, 0)
    (tmp_path / "_manifest" / "00000000.json").unlink()
    stale = tmp_path / "topic=orders" / "dt=2026-11-20" / "batch=0"
    stale.mkdir(parents=True)
    shutil.copy(files_of(tmp_path)[0], stale / "part-0.zstd.parquet")
    (stale / "part-1.zstd.parquet").touch()
    service.hold("orders", {0: 130})

    assert read_lake(spark, str(tmp_path)).count() == 0
    assert export(spark, service, tmp_path).rows == 130
    assert raw_offsets(tmp_path) == offsets("orders", {0: 130})
    assert [one.rows for one in Lake(spark, str(tmp_path)).manifests()] == [100, 30]


def test_a_batch_killed_after_its_manifest_is_left_as_it_is(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    export(spark, service.hold("orders", {0: 100}), tmp_path)
    before = files_of(tmp_path)
    forget_commit(tmp_path, 0)

    assert export(spark, service, tmp_path).rows == 0
    assert files_of(tmp_path) == before
    assert (tmp_path / "_checkpoint" / "commits" / "0").exists()


def test_a_batch_that_is_replayed_has_its_rows_though_retention_went_on(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    export(spark, service.hold("orders", {0: 100}), tmp_path)
    forget_commit(tmp_path, 0)
    (tmp_path / "_manifest" / "00000000.json").unlink()
    service.queues[Queue("orders", "broker-a", 0)] = (40, 100)

    with pytest.raises(PySparkException) as caught:
        export(spark, service, tmp_path)
    assert "messages 0 to 39 were deleted" in reason_of(caught.value)

    assert export(spark, service, tmp_path, failOnDataLoss="false").missing_rows == 40
    manifest = Lake(spark, str(tmp_path)).manifests()[0]
    assert (manifest.rows, manifest.missing_rows) == (60, 40)


def test_retention_that_was_faster_is_an_error_unless_it_is_allowed(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    export(spark, service.hold("orders", {0: 100}), tmp_path)
    service.queues[Queue("orders", "broker-a", 0)] = (150, 200)

    with pytest.raises(PySparkException) as caught:
        export(spark, service, tmp_path)
    assert "messages 100 to 149" in reason_of(caught.value)

    assert export(spark, service, tmp_path, failOnDataLoss="false").rows == 50


def test_a_damaged_message_is_an_error_unless_it_is_to_be_marked(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 40}).damaged = {(Queue("orders", "broker-a", 0), 17)}

    with pytest.raises(PySparkException) as failed:
        export(spark, service, tmp_path)
    done = export(spark, service, tmp_path, damaged="mark")

    assert "message-damaged" in reason_of(failed.value)
    assert (done.rows, done.damaged_rows) == (40, 1)
    assert [one.damaged_rows for one in Lake(spark, str(tmp_path)).manifests()] == [1]
    rows = read_lake(spark, str(tmp_path))
    marked = rows.where("damage IS NOT NULL").select("queue_offset", "body", "dt").collect()
    assert [tuple(row) for row in marked] == [(17, None, None)]
    assert rows.where("body IS NOT NULL").count() == 39


def test_what_killed_jobs_were_about_to_move_is_deleted(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    staging = tmp_path / ".spark-staging-1b4e" / "topic=orders"
    staging.mkdir(parents=True)
    (staging / "part-0.parquet").touch()

    export(spark, service.hold("orders", {0: 10}), tmp_path)

    assert list(tmp_path.glob(".spark-staging*")) == []


def test_an_export_leaves_no_process_and_no_connection_behind_even_one_that_failed(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 1_000})
    service.faults.extend([Fault(repeat_first=True) for _ in range(4)])
    with pytest.raises(PySparkException):
        export(spark, service, tmp_path)
    assert export(spark, service, tmp_path).rows == 1_000

    until_none(planners)
    until_none(lambda: list(readers(service.url)))


def test_a_second_export_of_the_same_lake_is_refused(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    with LocalFiles(tmp_path).locked(), pytest.raises(LakeBusyError):
        export(spark, service.hold("orders", {0: 10}), tmp_path)

    assert export(spark, service, tmp_path).rows == 10


def test_a_lake_whose_checkpoint_is_gone_is_not_overwritten(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    export(spark, service.hold("orders", {0: 10}), tmp_path)
    shutil.rmtree(tmp_path / "_checkpoint")
    service.hold("orders", {0: 30})

    with pytest.raises(PySparkException) as caught:
        export(spark, service, tmp_path)
    assert "another batch 0, from a deleted checkpoint" in reason_of(caught.value)
    assert raw_offsets(tmp_path) == offsets("orders", {0: 10})


def test_an_older_checkpoint_is_refused_and_the_lake_stays_as_it_is(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    lake, older = tmp_path / "lake", tmp_path / "older"
    export(spark, service.hold("orders", {0: 10}), lake)
    shutil.copytree(lake / "_checkpoint", older)
    export(spark, service.hold("orders", {0: 30}), lake)
    shutil.rmtree(lake / "_checkpoint")
    shutil.copytree(older, lake / "_checkpoint")

    with pytest.raises(PySparkException) as caught:
        export(spark, service.hold("orders", {0: 50}), lake)

    assert "another batch 1, from a deleted checkpoint" in reason_of(caught.value)
    assert raw_offsets(lake) == offsets("orders", {0: 30})


def test_a_service_that_repeats_rows_fails_the_batch_and_leaves_it_unfinished(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 1_000})
    service.faults.extend([Fault(repeat_first=True) for _ in range(4)])

    with pytest.raises(PySparkException) as caught:
        export(spark, service, tmp_path)
    assert "expected rows of broker-a/0:500-1000" in reason_of(caught.value)
    assert read_lake(spark, str(tmp_path)).count() == 0

    assert export(spark, service, tmp_path).rows == 1_000
    assert raw_offsets(tmp_path) == offsets("orders", {0: 1_000})


def test_a_service_that_breaks_off_costs_no_row(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 3_000})
    service.faults.extend(
        [
            Fault(cut_after_batches=1, cut_in_batch=True),
            Fault(Refusal(503, "broker-unreachable", 0)),
            Fault(end_after_batches=2),
        ]
    )

    assert export(spark, service, tmp_path).rows == 3_000
    assert raw_offsets(tmp_path) == offsets("orders", {0: 3_000})


def test_rows_that_are_missing_in_the_batch_are_noticed(
    spark: SparkSession, service: ExportService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of defence: what was written is counted against the ranges."""
    monkeypatch.setattr("eruca_spark.export._write", lambda *_: (99, 0, 0))

    with pytest.raises(PySparkException) as caught:
        export(spark, service.hold("orders", {0: 100}), tmp_path)
    assert reason_of(caught.value) == "expected 100 rows in batch 0, found 99"


def test_earlier_files_with_fewer_columns_are_read_with_nulls(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    export(spark, service.hold("orders", {0: 10}), tmp_path)
    path = files_of(tmp_path)[0]
    table = pq.ParquetFile(path).read().drop_columns(["flag"])
    pq.write_table(table, path)
    path.with_name(f".{path.name}.crc").unlink()
    service.hold("orders", {0: 15})
    export(spark, service, tmp_path)

    rows = read_lake(spark, str(tmp_path))
    assert rows.where("flag IS NULL").count() == 10
    assert rows.where("flag = 0").count() == 5


def test_a_copy_of_a_lake_is_a_lake(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    export(spark, service.hold("orders", {0: 10}), tmp_path / "one")
    (tmp_path / "one").rename(tmp_path / "two")
    service.hold("orders", {0: 12})

    assert read_lake(spark, str(tmp_path / "two")).count() == 10
    assert export(spark, service, tmp_path / "two").rows == 2
    assert raw_offsets(tmp_path / "two") == offsets("orders", {0: 12})


def test_what_waits_for_an_export_is_known_before_it(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    given = {"url": service.hold("orders", {0: 100}).url, "topic": "orders"}
    lake = Lake(spark, str(tmp_path))

    assert waiting_rows(lake, given) == 100
    run_export(spark, str(tmp_path), given)
    service.hold("orders", {0: 120, 1: 3})
    assert waiting_rows(lake, given) == 23


def test_a_manifest_names_its_files_with_their_sizes(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    export(spark, service.hold("orders", {0: 10}), tmp_path)
    document = json.loads((tmp_path / "_manifest" / "00000000.json").read_text())

    assert [(one["path"], one["size"]) for one in document["files"]] == [
        (str(path.relative_to(tmp_path)), path.stat().st_size) for path in files_of(tmp_path)
    ]
    schema = pa.parquet.read_schema(files_of(tmp_path)[0])
    assert schema.names == [name for name in COLUMNS if name != "topic"]
