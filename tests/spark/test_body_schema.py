"""Typed columns from JSON bodies: every message is typed or rejected, none is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import duckdb
import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eruca.exporting.columns import COLUMNS
from eruca.exporting.errors import OptionError
from eruca.exporting.ranges import Queue
from eruca_spark.bodies.json_bodies import inferred_schema
from eruca_spark.bodies.schema import BodySchema, stored_schema
from eruca_spark.export import LakeExported, run_export
from eruca_spark.failures import reason_of
from eruca_spark.lake import Lake, LakeError, read_lake
from eruca_spark.lake_files import LocalFiles
from eruca_spark.maintenance.folders import LocalFolders
from eruca_spark.maintenance.running import Maintenance
from eruca_spark.reports.audit import audit_report
from support.export_service import Bodies, ExportService

SCHEMA = BodySchema({"amount": "int", "name": "string", "tags": "array<string>"})
MISFITS = {
    3: (b"order 3", "the body is not a JSON object"),
    5: (b'[{"amount": 1}]', "the body is not a JSON object"),
    7: (b'{"amount": 1', "the body is not valid JSON"),
    11: (b'{"amount": 1} {"amount": 2}', "the body is not valid JSON"),
    12: (b'{"amount": 1}, {"amount": 2}', "the body is not valid JSON"),
    14: (b'{"amount": 1}] [{}', "the body is not valid JSON"),
    15: (b'{"amount": 1},0] [{}', "the body is not valid JSON"),
    13: (b'{"name": "\xff"}', "the body is not UTF-8"),
    17: (b'{"amount": "7"}', "fields do not have the types of their columns: amount"),
    19: (b'{"amount": 3000000000}', "fields do not have the types of their columns: amount"),
    23: (
        b'{"amount": 1.5, "tags": 3}',
        "fields do not have the types of their columns: amount, tags",
    ),
}
ODD = {
    2: (b"{}", None, None),
    4: (b'{"amount": null, "name": "n", "other": {"a": [1]}}', None, "n"),
    10: (b'{"amount": 1, "name": "]", "other": [[], [{}]]}', 1, "]"),
    6: (b'\n\t {"name": 12, "amount": 1}\r\n', 1, "12"),
}


def good(offset: int) -> bytes:
    return json.dumps({"amount": offset, "name": f"n{offset}", "tags": ["a"]}).encode()


def mixed(offset: int) -> bytes:
    if offset in MISFITS:
        return MISFITS[offset][0]
    return ODD[offset][0] if offset in ODD else good(offset)


def export(
    spark: SparkSession,
    service: ExportService,
    lake: Path,
    schema: BodySchema | None = None,
    **options: str,
) -> LakeExported:
    given = {"url": service.url, "topic": "orders", "retrySeconds": "5", **options}
    return run_export(spark, str(lake), given, body_schema=schema)


def test_bodies_become_columns_and_those_that_do_not_fit_are_kept_with_the_reason(
    spark: SparkSession, service: ExportService, tmp_path: Path, bodies: Callable[[Bodies], None]
) -> None:
    bodies(mixed)
    service.hold("orders", {0: 40}).damaged = {(Queue("orders", "broker-a", 0), 29)}

    done = export(spark, service, tmp_path, SCHEMA, damaged="mark")

    assert (done.rows, done.damaged_rows, done.rejected_rows) == (40, 1, len(MISFITS))
    [manifest] = Lake(spark, str(tmp_path)).manifests()
    assert (manifest.rows, manifest.rejected_rows) == (40, len(MISFITS))
    rows = {row["queue_offset"]: row for row in read_lake(spark, str(tmp_path)).collect()}
    assert [*sorted(rows)] == [*range(40)]
    for offset, row in rows.items():
        reason = MISFITS[offset][1] if offset in MISFITS else None
        assert row["reject_reason"] == reason
        if offset == 29:
            assert (row["body"], row["body_amount"]) == (None, None)
        else:
            assert bytes(row["body"]) == mixed(offset)
        if offset in ODD:
            assert (row["body_amount"], row["body_name"]) == ODD[offset][1:]
    assert (rows[9]["body_amount"], rows[9]["body_tags"]) == (9, ["a"])
    queues = audit_report(read_lake(spark, str(tmp_path))).tables[0]
    assert [(row["messages"], row["missing"]) for row in queues.rows.collect()] == [(40, 0)]


def test_readers_of_the_root_find_the_typed_rows_and_those_below_it_the_others(
    spark: SparkSession, service: ExportService, tmp_path: Path, bodies: Callable[[Bodies], None]
) -> None:
    bodies(mixed)
    export(spark, service.hold("orders", {0: 20}), tmp_path, SCHEMA)
    service.hold("orders", {0: 40})
    export(spark, service, tmp_path)

    done = Maintenance(LocalFolders(tmp_path)).run(1_000_000, today=date(2026, 11, 22))

    assert done.new_files == 2
    query = "SELECT count(*), sum(queue_offset) FROM read_parquet(?, hive_partitioning = true)"
    with duckdb.connect() as connection:
        typed, rejected = (
            connection.execute(query, [f"{root}/topic=*/**/*.parquet"]).fetchone()
            for root in (tmp_path, tmp_path / "_rejected")
        )
    assert rejected == (len(MISFITS), sum(MISFITS))
    assert typed == (40 - len(MISFITS), sum(range(40)) - sum(MISFITS))
    assert spark.read.parquet(str(tmp_path)).count() == 40 - len(MISFITS)
    assert read_lake(spark, str(tmp_path)).count() == 40
    dropped = Maintenance(LocalFolders(tmp_path)).run(
        1_000_000, keep_days=0, today=date(2026, 11, 22)
    )
    assert dropped.dropped_rows == 40
    assert read_lake(spark, str(tmp_path)).count() == 0


def test_a_schema_is_inferred_from_the_first_batch_and_then_kept(
    spark: SparkSession, service: ExportService, tmp_path: Path, bodies: Callable[[Bodies], None]
) -> None:
    bodies(lambda offset: good(offset) if offset < 20 else b'{"amount": "many", "a b": 1}')
    service.hold("orders", {0: 30})
    given = {"url": service.url, "topic": "orders", "maxRowsPerTrigger": "20"}

    done = run_export(spark, str(tmp_path), given, body_schema="infer")

    assert stored_schema(LocalFiles(tmp_path)).fields == {
        "amount": "bigint",
        "name": "string",
        "tags": "array<string>",
    }
    assert (done.rows, done.rejected_rows) == (30, 10)
    again = run_export(spark, str(tmp_path), given, body_schema="infer")
    assert again.batches == 0


def test_the_bodies_of_a_sample_stay_with_the_executors(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand of them may be larger than the driver's memory."""
    bodies = [(bytearray(good(offset)),) for offset in range(100)]
    rows = spark.createDataFrame(bodies, "body BINARY")
    for owner, names in (
        (type(rows), ("collect", "toLocalIterator", "toPandas", "toArrow")),
        (SparkContext, ("parallelize",)),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, lambda *_, **__: pytest.fail("in the driver"))

    assert inferred_schema(rows).fields == {
        "amount": "bigint",
        "name": "string",
        "tags": "array<string>",
    }


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_missing_schema_is_an_error_for_readers_and_exports(
    spark: SparkSession,
    service: ExportService,
    tmp_path: Path,
    bodies: Callable[[Bodies], None],
    *,
    is_killed: bool,
) -> None:
    """Hadoop's file systems delete it before they rename the new one."""
    bodies(good if is_killed else mixed)
    export(spark, service.hold("orders", {0: 10}), tmp_path, SCHEMA)
    schema = tmp_path / "_body_schema.json"
    new = tmp_path / ("_body_schema.json.17.tmp" if is_killed else "kept.json")
    schema.rename(new)

    for action in (
        lambda: read_lake(spark, str(tmp_path)),
        lambda: export(spark, service, tmp_path, BodySchema({"amount": "bigint"})),
    ):
        with pytest.raises(LakeError, match=r"has no _body_schema\.json, but _"):
            action()

    new.rename(schema)
    assert read_lake(spark, str(tmp_path)).where("body_amount = 8").count() == 1
    assert export(spark, service, tmp_path).rows == 0


def test_a_sample_without_a_json_object_is_an_error_and_nothing_is_written(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    given = {"url": service.hold("orders", {0: 10}).url, "topic": "orders", "retrySeconds": "5"}
    with pytest.raises(PySparkException) as caught:
        run_export(spark, str(tmp_path), given, body_schema="infer")

    assert "give the schema in a file" in reason_of(caught.value)
    assert run_export(spark, str(tmp_path), given).rows == 10
    assert read_lake(spark, str(tmp_path)).columns == [*COLUMNS, "dt", "batch"]


def test_a_field_may_be_added_but_no_type_changes(
    spark: SparkSession, service: ExportService, tmp_path: Path, bodies: Callable[[Bodies], None]
) -> None:
    bodies(good)
    export(spark, service.hold("orders", {0: 10}), tmp_path, BodySchema({"amount": "int"}))
    service.hold("orders", {0: 20})

    with pytest.raises(OptionError, match="field amount is int in the lake, not bigint"):
        export(spark, service, tmp_path, BodySchema({"amount": "bigint"}))
    with pytest.raises(OptionError, match="field name: unknown type 'text'"):
        export(spark, service, tmp_path, BodySchema({"name": "text"}))
    assert export(spark, service, tmp_path, BodySchema({"name": "string"})).rows == 10

    assert stored_schema(LocalFiles(tmp_path)).fields == {"amount": "int", "name": "string"}
    rows = read_lake(spark, str(tmp_path)).orderBy("queue_offset")
    found = rows.select("body_amount", "body_name").collect()
    assert [row["body_amount"] for row in found] == [*range(20)]
    assert [row["body_name"] for row in found] == [None] * 10 + [f"n{n}" for n in range(10, 20)]
    Maintenance(LocalFolders(tmp_path)).run(1_000_000, today=date(2026, 11, 22))
    assert rows.sparkSession.read.parquet(str(tmp_path)).select("body_name").count() == 20


def test_a_batch_killed_before_its_manifest_is_written_again_with_its_rejected_rows(
    spark: SparkSession, service: ExportService, tmp_path: Path, bodies: Callable[[Bodies], None]
) -> None:
    bodies(mixed)
    export(spark, service.hold("orders", {0: 40}), tmp_path, SCHEMA)
    for path in ("_manifest/00000000.json", "_checkpoint/commits/0", "_checkpoint/commits/.0.crc"):
        (tmp_path / path).unlink()
    assert read_lake(spark, str(tmp_path)).count() == 0

    assert export(spark, service, tmp_path).rejected_rows == len(MISFITS)
    assert read_lake(spark, str(tmp_path)).count() == 40
    files = [*tmp_path.glob("**/topic=*/**/*.parquet")]
    assert len(files) == 2
