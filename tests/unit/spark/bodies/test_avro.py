"""Bodies of Avro: those that fastavro has written, and those that nobody can have written."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_spark.bodies.decoders.avro import AvroSchema
from eruca_spark.bodies.decoders.columns import ddl_of
from eruca_spark.bodies.decoders.decoder import BodyDecoder, Description
from eruca_spark.bodies.decoders.errors import BodyError, DescriptionError

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "pieces", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "weight", "type": "float"},
        {"name": "total", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": "bytes"},
        {"name": "digest", "type": {"type": "fixed", "name": "Md5", "size": 16}},
        {
            "name": "state",
            "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]},
        },
        {"name": "last_state", "type": ["null", "State"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {
            "name": "buyer",
            "type": {
                "type": "record",
                "name": "Buyer",
                "fields": [
                    {"name": "name", "type": "string"},
                    {"name": "digest", "type": ["Md5", "null"]},
                ],
            },
        },
        {"name": "others", "type": {"type": "array", "items": "shop.Buyer"}},
        {"name": "choice", "type": ["null", "string", "long", "State"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "at_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {
            "name": "rate",
            "type": {
                "type": "fixed",
                "name": "Rate",
                "size": 16,
                "logicalType": "decimal",
                "precision": 38,
                "scale": 18,
            },
        },
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
AT = datetime(2026, 11, 28, 8, 30, 0, 123_456, tzinfo=UTC)
KEY = UUID("12345678-1234-5678-1234-567812345678")
VALUES: dict[str, Any] = {
    "id": -(2**63),
    "pieces": 2**31 - 1,
    "paid": True,
    "weight": 0.5,
    "total": 1e300,
    "note": "Grüße, 你好",
    "raw": b"\x00\xff",
    "digest": bytes(range(16)),
    "state": "SENT",
    "last_state": "NEW",
    "tags": ["a", ""],
    "counts": {"x": 1, "y": -(2**40)},
    "buyer": {"name": "Zoë", "digest": None},
    "others": [{"name": "n", "digest": bytes(16)}],
    "choice": 2**40,
    "at": AT,
    "at_ms": AT.replace(microsecond=123_000),
    "local": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC).replace(tzinfo=None),
    "day": date(2026, 11, 28),
    "price": Decimal("-12345678.90"),
    "rate": Decimal("12345678901234567890.123456789012345678"),
    "key": str(KEY),
}

DECODER = BodyDecoder(
    Description("avro", {"": ORDER}),
    {name: column.type for name, column in AvroSchema(ORDER).columns.items() if column.type},
    "reason",
)


def written(schema: dict[str, Any], values: dict[str, Any]) -> bytes:
    """Return the bytes that another implementation writes."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, values)
    return body.getvalue()


def record(*types: object, **named: object) -> dict[str, Any]:
    fields: list[dict[str, Any]] = [{"name": f"f{n}", "type": one} for n, one in enumerate(types)]
    fields += [{"name": name, "type": one} for name, one in named.items()]
    return {"type": "record", "name": "R", "fields": fields}


def test_every_type_is_read_as_it_was_written() -> None:
    read = dict(AvroSchema(ORDER).read(written(ORDER, VALUES)))

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    micro = timedelta(microseconds=1)
    assert read == {
        **VALUES,
        "counts": [("x", 1), ("y", -(2**40))],
        "choice": {"member1": 2**40},
        "at": (AT - epoch) // micro,
        "at_ms": (AT.replace(microsecond=123_000) - epoch) // micro,
        "local": -1_000_000,
        "day": (VALUES["day"] - date(1970, 1, 1)).days,
    }


def test_columns_have_the_types_of_spark() -> None:
    found = {
        name: ddl_of(column.type)
        for name, column in AvroSchema(ORDER).columns.items()
        if column.type is not None
    }

    assert found == {
        "id": "bigint",
        "pieces": "int",
        "paid": "boolean",
        "weight": "float",
        "total": "double",
        "note": "string",
        "raw": "binary",
        "digest": "binary",
        "state": "string",
        "last_state": "string",
        "tags": "array<string>",
        "counts": "map<string,bigint>",
        "buyer": "struct<name:string,digest:binary>",
        "others": "array<struct<name:string,digest:binary>>",
        "choice": "struct<member0:string,member1:bigint,member2:string>",
        "at": "timestamp",
        "at_ms": "timestamp",
        "local": "timestamp_ntz",
        "day": "date",
        "price": "decimal(10,2)",
        "rate": "decimal(38,18)",
        "key": "string",
    }


@given(
    st.fixed_dictionaries(
        {
            "f0": st.none() | st.integers(-(2**63), 2**63 - 1),
            "f1": st.lists(st.text()),
            "f2": st.dictionaries(st.text(), st.binary()),
            "f3": st.integers(-(2**31), 2**31 - 1),
        }
    )
)
def test_other_values_are_read_as_they_were_written(values: dict[str, Any]) -> None:
    schema = record(
        ["null", "long"],
        {"type": "array", "items": "string"},
        {"type": "map", "values": "bytes"},
        "int",
    )
    read = AvroSchema(schema).read(written(schema, values))

    assert read == {**values, "f2": [*values["f2"].items()]}


@given(st.data())
def test_a_damaged_body_is_read_in_another_way_or_refused_and_nothing_else(
    data: st.DataObject,
) -> None:
    body = bytearray(written(ORDER, VALUES))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(body)))
    damaged = pa.array([bytes(body), bytes(body[:end])], pa.binary())

    rows = DECODER.decoded(damaged).to_pylist()

    assert all(row["reason"] or row["buyer"] is not None for row in rows)


def test_a_body_that_ends_anywhere_is_refused() -> None:
    body = written(ORDER, VALUES)
    for end in range(len(body)):
        with pytest.raises(BodyError, match=r"the body ends in it|found a length of"):
            AvroSchema(ORDER).read(body[:end])


@pytest.mark.parametrize(
    ("type_", "body", "told"),
    [
        ("int", b"", "field f0: the body ends in it"),
        ("int", b"\x80", "field f0: the body ends in it"),
        ("int", b"\x02\x02", "bytes behind the record: 1"),
        (
            "int",
            b"\x80\x80\x80\x80\x10",
            "field f0: expected an integer of 32 bits, found 21474836",
        ),
        ("long", b"\xff" * 9 + b"\x02", "field f0: expected an integer of 64 bits"),
        ("long", b"\xff" * 10 + b"\x00", "field f0: expected an integer of at most 10 bytes"),
        ("boolean", b"\x02", "field f0: expected 0 or 1 for a boolean, found 2"),
        ("float", b"\x00\x00", "field f0: the body ends in it"),
        ("string", b"\x04\xc3", "field f0: expected at most 1 bytes, found a length of 2"),
        ("string", b"\x01", "field f0: expected at most 0 bytes, found a length of -1"),
        ("string", b"\x02\xff", "field f0: the text is not UTF-8"),
        (["null", "int"], b"\x01\x02", "field f0: expected one of 2 branches, found number -1"),
        (["null", "int"], b"\x04\x02", "field f0: expected one of 2 branches, found number 2"),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            b"\x01",
            "field f0: expected one of 2 symbols, found number -1",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2},
            b"\x02\x64",
            "field f0: expected a decimal of at most 2 digits",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            b"\xff" * 8 + b"\x7f",
            "field f0: the time -4611686018427387904 ms is out of range",
        ),
        (
            {"type": "array", "items": "null"},
            b"\xfe\xff\xff\xff\x0f\x00",
            "field f0: expected at most 6 items, found a number of 2147483647",
        ),
        (
            record(name="string"),
            b"\x02\xff",
            "field f0.name: the text is not UTF-8",
        ),
    ],
)
def test_a_reason_names_the_field(type_: object, body: bytes, told: str) -> None:
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "f0", "type": type_}]}
    with pytest.raises(BodyError) as caught:
        AvroSchema(outer).read(body)

    assert str(caught.value).startswith(told)


def test_blocks_with_their_size_are_read() -> None:
    schema = record({"type": "array", "items": "long"}, {"type": "map", "values": "long"})
    body = b"\x03\x04\x02\x04\x02\x06\x00" + b"\x01\x06\x02a\x02\x00"

    assert AvroSchema(schema).read(body) == {"f0": [1, 2, 3], "f1": [("a", 1)]}


@pytest.mark.parametrize(
    "item",
    [
        "null",
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "E", "fields": [{"name": "no", "type": "null"}]},
    ],
)
def test_a_body_limits_its_items_without_bytes(item: object) -> None:
    schema = AvroSchema(record({"type": "array", "items": {"type": "array", "items": item}}))

    def body_of(array_count: int, item_count: int) -> bytes:
        arrays = bytes([item_count * 2, 0]) * array_count
        return bytes([array_count * 2]) + arrays + b"\x00"

    for _ in range(2):
        assert [len(one) for one in schema.read(body_of(20, 2))["f0"]] == [2] * 20
    with pytest.raises(BodyError, match="expected at most 42 items without bytes, found 50"):
        schema.read(body_of(20, 10))


def test_types_that_double_at_each_level_have_no_column() -> None:
    levels = 60
    node: object = record("long", name="string") | {"name": f"L{levels}"}
    for level in reversed(range(levels)):
        fields = [{"name": "a", "type": node}, {"name": "b", "type": f"L{level + 1}"}]
        node = {"type": "record", "name": f"L{level}", "fields": fields}

    columns = AvroSchema(record("long", tree=node)).columns

    assert columns["f0"].type is not None
    assert "it has more than 2000 members" in columns["tree"].why


def test_types_without_a_column_are_read_over() -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "value", "type": "int"},
            {"name": "next", "type": ["null", "Node"]},
            {"name": "nothing", "type": "null"},
            {"name": "empty", "type": {"type": "record", "name": "Empty", "fields": []}},
            {
                "name": "cases",
                "type": {
                    "type": "record",
                    "name": "Cases",
                    "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}],
                },
            },
            {"name": "behind", "type": "string"},
        ],
    }
    values = {"value": 1, "nothing": None, "empty": {}, "cases": {"a": 1, "A": 2}, "behind": "b"}
    outer = {**values, "next": {**values, "next": None}}
    schema = AvroSchema(node)

    assert schema.read(written(node, outer))["behind"] == "b"
    assert {name: one.why for name, one in schema.columns.items() if one.type is None} == {
        "next": "Node contains itself",
        "nothing": "it is always null",
        "empty": "it has no fields",
        "cases": "names of its fields differ only in case",
    }


def test_a_body_that_is_nested_too_deeply_is_refused() -> None:
    node = record("int", next=["null", "R"])

    with pytest.raises(BodyError, match="nested too deeply"):
        AvroSchema(node).read(b"\x02\x02" * 100_000 + b"\x02\x00")


@pytest.mark.parametrize(
    ("node", "ddl"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 40}, "binary"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, "binary"),
        ({"type": "string", "logicalType": "date"}, "string"),
        ({"type": "int", "logicalType": "time-millis"}, "int"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "bigint"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "string"),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, "binary"),
        ({"type": {"type": "array", "items": "int"}}, "array<int>"),
    ],
)
def test_logical_types_that_have_no_column_stay_what_they_annotate(node: object, ddl: str) -> None:
    column = AvroSchema(record(node)).columns["f0"]

    assert column.type is not None
    assert ddl_of(column.type) == ddl


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("string", "expected the schema of a record, .* found 'string'"),
        ([], "expected the schema of a record"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "found 'enum'"),
        ({"type": "record"}, 'expected a "name" of the record, found None'),
        ({"type": "record", "name": "1"}, "expected a \"name\" of the record, found '1'"),
        ({"type": "record", "name": "R"}, 'expected a list as "fields" of R, found None'),
        ({"type": "record", "name": "R", "fields": [1]}, "expected a field of R with a name"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a"}]},
            'field a: it has no "type"',
        ),
        (record("strnig"), "field f0: unknown type 'strnig'; expected a type of Avro, or a name"),
        (record({"type": "int32"}), "field f0: unknown type 'int32'"),
        (record(17), "field f0: expected a schema of Avro, found 17"),
        (record([]), "field f0: expected a union of at least one type"),
        (record([["int"]]), "field f0: expected no union directly in a union"),
        (record(["null", "null"]), "field f0: expected null once in a union"),
        (record({"type": "array"}), 'field f0: the array has no "items"'),
        (record({"type": "map"}), 'field f0: the map has no "values"'),
        (
            record({"type": "enum", "name": "E", "symbols": []}),
            "field f0: expected different texts",
        ),
        (
            record({"type": "fixed", "name": "F", "size": -1}),
            "field f0: expected a number of bytes",
        ),
        (
            record(
                {"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2}
            ),
            "field f1: the name F is defined twice",
        ),
        (
            record(record({"type": "array", "items": "nix"})),
            "field f0: the name R is defined twice",
        ),
        (
            {
                "type": "record",
                "name": "A",
                "fields": [{"name": "f", "type": record({"type": "array", "items": "nix"})}],
            },
            "field f.f0: unknown type 'nix'",
        ),
    ],
)
def test_an_invalid_schema_is_refused_by_place_and_value(schema: object, told: str) -> None:
    with pytest.raises(DescriptionError, match=told):
        AvroSchema(schema)
