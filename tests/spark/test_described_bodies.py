"""Typed columns from Avro and Protobuf bodies: every message is typed or rejected, none is lost."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import polars as pl
import pyarrow.dataset as ds
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from pyspark.sql import SparkSession

from eruca.exporting.errors import OptionError
from eruca_spark.bodies.given import given_bodies
from eruca_spark.bodies.schema import BodySchema, stored_schema
from eruca_spark.export import LakeExported, run_export
from eruca_spark.lake import Lake, read_lake
from eruca_spark.lake_files import LocalFiles
from eruca_spark.maintenance.folders import LocalFolders
from eruca_spark.maintenance.running import Maintenance
from support.export_service import Bodies, ExportService
from support.protobuf_files import add_field, message_class, shop_file

AT = datetime(2026, 11, 28, 8, 30, 0, 123_456, tzinfo=UTC)
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {
            "name": "buyer",
            "type": {
                "type": "record",
                "name": "Buyer",
                "fields": [
                    {"name": "name", "type": "string"},
                    {"name": "since", "type": ["null", {"type": "int", "logicalType": "date"}]},
                ],
            },
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "choice", "type": ["null", "string", "long"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
    ],
}
LATER: dict[str, Any] = {
    **ORDER,
    "fields": [*ORDER["fields"], {"name": "discount", "type": ["null", "int"], "default": None}],
}
SHOP = shop_file()


def avro(offset: int, schema: dict[str, Any] = ORDER, **more: object) -> bytes:
    """Return a record that fastavro has written."""
    body = io.BytesIO()
    values = {
        "id": offset,
        "note": None if offset % 2 else f"n{offset}",
        "raw": b"\x00\xff",
        "state": "PAID",
        "buyer": {"name": "Zoë", "since": date(2026, 11, 28)},
        "tags": ["a", "b"],
        "counts": {"x": offset},
        "choice": offset if offset % 2 else "c",
        "at": AT,
        "price": Decimal("12.50"),
        **more,
    }
    fastavro.schemaless_writer(body, schema, values)
    return body.getvalue()


def protobuf(offset: int, descriptor_set: bytes = SHOP, **more: object) -> bytes:
    """Return a message that Google's implementation has written."""
    message: Any = message_class(descriptor_set, "shop.Order")(
        id=offset,
        large=2**64 - 1,
        state=2,
        tags=["a", "b"],
        counts={"x": offset},
        buyer={"name": "Zoë"},
        others=[{"name": "o", "mail": "m"}],
        nick={"value": "z"},
        raw=b"\x00\xff",
        number=offset,
        **more,
    )
    message.at.FromDatetime(AT)
    body: bytes = message.SerializeToString()
    return body


FOREIGN: dict[int, bytes] = {
    3: b'{"id": 3}',
    5: b"order 5",
    7: b"\x00",
    11: avro(11)[:-3],
    13: avro(13) + b"\x00",
}


@pytest.fixture
def schema_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., BodySchema]:
    """Return a function that makes the schema of files, as the command does."""
    directory = tmp_path_factory.mktemp("schemas")

    def make(message: str | None = None, /, **schemas: object) -> BodySchema:
        texts = []
        for key, schema in schemas.items():
            path = directory / f"{key}{'.desc' if message else '.avsc'}"
            path.write_bytes(schema if isinstance(schema, bytes) else json.dumps(schema).encode())
            schema_id = key.removeprefix("id_")
            texts.append(f"{schema_id}={path}" if schema_id.isdecimal() else str(path))
        found = given_bodies(texts, message)
        assert isinstance(found, BodySchema)
        return found

    return make


def export(
    spark: SparkSession,
    service: ExportService,
    lake: Path,
    schema: BodySchema | None = None,
    **options: str,
) -> LakeExported:
    given = {"url": service.url, "topic": "orders", "retrySeconds": "5", **options}
    return run_export(spark, str(lake), given, body_schema=schema)


def rows_of(spark: SparkSession, lake: Path) -> dict[int, Any]:
    return {row["queue_offset"]: row for row in read_lake(spark, str(lake)).collect()}


def test_avro_becomes_columns_that_all_readers_read(
    spark: SparkSession,
    service: ExportService,
    tmp_path: Path,
    bodies: Callable[[Bodies], None],
    schema_of: Callable[..., BodySchema],
) -> None:
    bodies(lambda offset: FOREIGN.get(offset, avro(offset)))
    service.hold("orders", {0: 40})

    done = export(spark, service, tmp_path, schema_of(order=ORDER))

    assert (done.rows, done.rejected_rows) == (40, len(FOREIGN))
    [manifest] = Lake(spark, str(tmp_path)).manifests()
    assert manifest.rejected_rows == len(FOREIGN)
    rows = rows_of(spark, tmp_path)
    assert [*sorted(rows)] == [*range(40)]
    for offset, row in rows.items():
        assert bytes(row["body"]) == FOREIGN.get(offset, avro(offset))
        assert (row["reject_reason"] is None) == (offset not in FOREIGN)
        assert row["body_id"] == (None if offset in FOREIGN else offset)
    assert rows[13]["reject_reason"] == "bytes behind the record: 1"
    assert rows[11]["reject_reason"].startswith("field price: ")
    assert rows[9]["body_buyer"].asDict() == {"name": "Zoë", "since": date(2026, 11, 28)}
    assert rows[9]["body_choice"].asDict() == {"member0": None, "member1": 9}
    expected = {
        "body_id": 8,
        "body_note": "n8",
        "body_raw": b"\x00\xff",
        "body_state": "PAID",
        "body_buyer": {"name": "Zoë", "since": date(2026, 11, 28)},
        "body_tags": ["a", "b"],
        "body_choice": {"member0": "c", "member1": None},
        "body_at": AT,
        "body_price": Decimal("12.50"),
    }
    pattern = f"{tmp_path}/topic=*/**/*.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        names = ", ".join([*expected, "body_counts['x']"])
        found = connection.execute(
            f"SELECT {names} FROM read_parquet(?, hive_partitioning = true) WHERE body_id = 8",
            [pattern],
        ).fetchone()
        assert found is not None
        assert found[:-1] == (*expected.values(),)
        assert found[-1] in (8, [8])
    read_by_arrow = ds.dataset(str(tmp_path), format="parquet", partitioning="hive")
    [row] = read_by_arrow.to_table(filter=ds.field("body_id") == 8).to_pylist()
    assert {name: row[name] for name in expected} == expected
    assert row["body_counts"] == [("x", 8)]
    by_polars = pl.scan_parquet(pattern, hive_partitioning=True).filter(pl.col("body_id") == 8)
    [row] = by_polars.select(*expected).collect().to_dicts()
    assert row == expected


def test_protobuf_becomes_columns_that_all_readers_read(
    spark: SparkSession,
    service: ExportService,
    tmp_path: Path,
    bodies: Callable[[Bodies], None],
    schema_of: Callable[..., BodySchema],
) -> None:
    parcel = message_class(SHOP, "shop.Parcel")(id="p").SerializeToString()
    foreign = {3: b'{"id": 3}', 5: parcel, 7: protobuf(7)[:-1]}
    bodies(lambda offset: foreign.get(offset, protobuf(offset)))
    service.hold("orders", {0: 40})

    done = export(spark, service, tmp_path, schema_of("shop.Order", order=SHOP))

    assert (done.rows, done.rejected_rows) == (40, 3)
    rows = rows_of(spark, tmp_path)
    assert [*sorted(rows)] == [*range(40)]
    assert rows[3]["reject_reason"] == "the body is not a shop.Order"
    assert rows[5]["reject_reason"].startswith("field id: it has another type")
    expected = {
        "body_id": 8,
        "body_large": Decimal(2**64 - 1),
        "body_state": "SENT",
        "body_tags": ["a", "b"],
        "body_buyer": {"name": "Zoë", "mail": None},
        "body_others": [{"name": "o", "mail": "m"}],
        "body_at": AT,
        "body_nick": "z",
        "body_raw": b"\x00\xff",
        "body_text": None,
        "body_number": 8,
        "body_note": "",
    }
    read_by_arrow = ds.dataset(str(tmp_path), format="parquet", partitioning="hive")
    [row] = read_by_arrow.to_table(filter=ds.field("body_id") == 8).to_pylist()
    assert {name: row[name] for name in expected} == expected
    pattern = f"{tmp_path}/topic=*/**/*.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(
            f"SELECT {', '.join(expected)} FROM read_parquet(?) WHERE body_id = 8", [pattern]
        ).fetchone()
    assert found == (*expected.values(),)


def test_a_field_that_a_later_schema_adds_is_null_in_older_rows(
    spark: SparkSession,
    service: ExportService,
    tmp_path: Path,
    bodies: Callable[[Bodies], None],
    schema_of: Callable[..., BodySchema],
) -> None:
    bodies(lambda offset: avro(offset) if offset < 10 else avro(offset, LATER, discount=offset))
    export(spark, service.hold("orders", {0: 10}), tmp_path, schema_of(order=ORDER))
    service.hold("orders", {0: 20})

    export(spark, service, tmp_path, schema_of(order=LATER))

    rows = rows_of(spark, tmp_path)
    assert [rows[n]["body_discount"] for n in (9, 10, 19)] == [None, 10, 19]
    assert [rows[n]["body_id"] for n in range(20)] == [*range(20)]
    Maintenance(LocalFolders(tmp_path)).run(1_000_000, today=date(2026, 11, 22))
    merged = spark.read.parquet(str(tmp_path)).where("body_discount = 12 AND body_id = 12")
    assert merged.count() == 1
    # without the option, the lake's own schema decodes; and a field that it lacks stays
    service.hold("orders", {0: 25})
    assert export(spark, service, tmp_path).rejected_rows == 0
    bodies(avro)
    service.hold("orders", {0: 30})
    export(spark, service, tmp_path, schema_of(order=ORDER))
    rows = rows_of(spark, tmp_path)
    assert [rows[n]["body_discount"] for n in (24, 25, 29)] == [24, None, None]
    assert rows[29]["body_id"] == 29


def test_ids_in_front_of_bodies_choose_their_schemas(
    spark: SparkSession,
    service: ExportService,
    tmp_path: Path,
    bodies: Callable[[Bodies], None],
    schema_of: Callable[..., BodySchema],
) -> None:
    def with_id(offset: int) -> bytes:
        if offset % 3 == 2:
            return b"\x00\x00\x00\x00\x13" + avro(offset)
        later = offset % 3 == 1
        schema = LATER if later else ORDER
        more = {"discount": offset} if later else {}
        return b"\x00\x00\x00\x00" + bytes([18 if later else 17]) + avro(offset, schema, **more)

    bodies(with_id)
    service.hold("orders", {0: 30})

    export(spark, service, tmp_path, schema_of(id_17=ORDER, id_18=LATER))

    rows = rows_of(spark, tmp_path)
    assert [rows[n]["body_discount"] for n in (0, 1, 2, 28)] == [None, 1, None, 28]
    assert rows[2]["reject_reason"] == "expected a schema id of 17, 18, found 19"
    # a schema that comes later is added to those that the lake has
    service.hold("orders", {0: 60})
    assert export(spark, service, tmp_path, schema_of(id_19=ORDER)).rejected_rows == 0
    with pytest.raises(OptionError, match="bodies of this lake have schema ids"):
        export(spark, service, tmp_path, schema_of(order=ORDER))


def test_protobuf_of_a_later_version_is_read_before_and_after_its_descriptor_comes(
    spark: SparkSession,
    service: ExportService,
    tmp_path: Path,
    bodies: Callable[[Bodies], None],
    schema_of: Callable[..., BodySchema],
) -> None:
    later = shop_file(
        adds=lambda file: add_field(file, 0, "discount", 99, FieldDescriptorProto.TYPE_INT32)
    )
    bodies(lambda offset: protobuf(offset, later, discount=offset))
    export(spark, service.hold("orders", {0: 10}), tmp_path, schema_of("shop.Order", order=SHOP))
    service.hold("orders", {0: 20})
    done = export(spark, service, tmp_path, schema_of("shop.Order", order=later))

    rows = rows_of(spark, tmp_path)
    assert done.rejected_rows == 0
    assert [rows[n]["body_discount"] for n in (9, 10)] == [None, 10]
    assert [rows[n]["body_id"] for n in range(20)] == [*range(20)]


def test_fields_have_the_names_of_the_lakes_own_columns(
    spark: SparkSession,
    service: ExportService,
    tmp_path: Path,
    bodies: Callable[[Bodies], None],
    schema_of: Callable[..., BodySchema],
) -> None:
    names = ["id", "Reject_Reason", "body", "damage", "_parsed"]
    schema = {
        "type": "record",
        "name": "Refund",
        "fields": [{"name": name, "type": "long"} for name in names],
    }

    def refund(offset: int) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, dict.fromkeys(names, offset))
        return b"no refund" if offset == 3 else body.getvalue()

    bodies(refund)
    service.hold("orders", {0: 10})

    assert export(spark, service, tmp_path, schema_of(refund=schema)).rejected_rows == 1

    rows = rows_of(spark, tmp_path)
    assert [rows[9][f"body_{name}"] for name in names] == [9] * len(names)
    assert [offset for offset, row in rows.items() if row["reject_reason"]] == [3]


def test_a_lake_keeps_its_format_and_its_types(
    spark: SparkSession,
    service: ExportService,
    tmp_path: Path,
    bodies: Callable[[Bodies], None],
    schema_of: Callable[..., BodySchema],
) -> None:
    bodies(avro)
    export(spark, service.hold("orders", {0: 10}), tmp_path, schema_of(order=ORDER))
    kept = stored_schema(LocalFiles(tmp_path))
    changed = {**ORDER, "fields": [{"name": "id", "type": "string"}]}

    for schema, told in (
        (BodySchema({"id": "bigint"}), "bodies of this lake are Avro, not JSON"),
        (schema_of("shop.Order", order=SHOP), "bodies of this lake are Avro, not Protobuf"),
        (schema_of(id_17=ORDER), "bodies of this lake have no schema ids"),
        (schema_of(order=changed), "field id is bigint in the lake, not string"),
    ):
        with pytest.raises(OptionError, match=told):
            export(spark, service, tmp_path, schema)
    given = {"url": service.url, "topic": "orders"}
    with pytest.raises(OptionError, match="bodies of this lake are Avro, not JSON"):
        run_export(spark, str(tmp_path), given, body_schema="infer")
    assert stored_schema(LocalFiles(tmp_path)) == kept


def test_a_batch_killed_before_its_manifest_is_written_again_with_its_rejected_rows(
    spark: SparkSession,
    service: ExportService,
    tmp_path: Path,
    bodies: Callable[[Bodies], None],
    schema_of: Callable[..., BodySchema],
) -> None:
    bodies(lambda offset: FOREIGN.get(offset, avro(offset)))
    export(spark, service.hold("orders", {0: 40}), tmp_path, schema_of(order=ORDER))
    for path in ("_manifest/00000000.json", "_checkpoint/commits/0", "_checkpoint/commits/.0.crc"):
        (tmp_path / path).unlink()
    assert read_lake(spark, str(tmp_path)).count() == 0

    assert export(spark, service, tmp_path).rejected_rows == len(FOREIGN)
    assert read_lake(spark, str(tmp_path)).count() == 40
    assert len([*tmp_path.glob("**/topic=*/**/*.parquet")]) == 2
