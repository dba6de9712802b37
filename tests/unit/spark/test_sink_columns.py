"""The columns of a sink: a frame that does not fit is refused before anything is sent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import types

from eruca.exporting.errors import OptionError
from pyspark_eruca.sink_columns import RowError, SinkColumns
from pyspark_eruca.sink_options import SinkOptions

ALL = (
    "topic string, body binary, keys array, tag string, properties map,"
    " sharding_key string, deliver_at timestamp, flag int, deleted boolean"
)


TYPES: dict[str, types.DataType] = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "boolean": types.BooleanType(),
    "timestamp": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "array": types.ArrayType(types.StringType()),
    "map": types.MapType(types.StringType(), types.StringType()),
}


def schema(text: str) -> types.StructType:
    fields = types.StructType()
    for column in text.split(", "):
        name, kind = column.split(" ")
        fields.add(name, TYPES[kind])
    return fields


def columns(text: str, topic: str | None = None, key_column: str | None = None) -> SinkColumns:
    return SinkColumns(schema(text), topic=topic, key_column=key_column)


@pytest.mark.parametrize(
    ("text", "topic", "told"),
    [
        ("topic string, tag string", None, "the column body is missing"),
        ("body string", None, "name the topic: in the option topic, or in a column topic"),
        ("topic string, body string", "orders", r'drop\("topic"\)'),
        ("body string, value binary", "orders", "unknown column value.* rename it to body"),
        ("body string, price int", "orders", "unknown column price, whose values would be lost"),
        ("body int", "orders", "column body: expected BINARY or STRING, found INT"),
        (
            "body string, deliver_at timestamp_ntz",
            "orders",
            "column deliver_at: expected TIMESTAMP, found TIMESTAMP_NTZ",
        ),
        ("body string, key string, keys array", "orders", "exclude each other"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(text: str, topic: str | None, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        columns(text, topic)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(OptionError, match=r"column tag: .*column body is missing.*name the topic"):
        columns("tag int")


def test_a_column_of_keys_must_exist_and_may_have_any_name() -> None:
    assert columns("body string, id string", "orders", "id").key_of({"id": "a-1"}) == "a-1"
    with pytest.raises(OptionError, match="there is no column id"):
        columns("body string", "orders", "id")
    with pytest.raises(OptionError, match="column id: expected STRING, found BIGINT"):
        columns("body string, id bigint", "orders", "id")


def test_a_row_becomes_the_message_of_its_columns() -> None:
    row = {
        "topic": "orders",
        "body": b"\xff",
        "keys": ["a", "b"],
        "tag": "new",
        "properties": [("colour", "red")],
        "sharding_key": "a",
        "deliver_at": datetime(2026, 11, 28, 1, 2, 3, 456000, tzinfo=UTC),
        "flag": 7,
        "deleted": None,
    }
    topic, sharding_key, text = columns(ALL).message_of(row)

    assert (topic, sharding_key) == ("orders", "a")
    assert json.loads(text) == {
        "body": {"base64": "/w=="},
        "keys": ["a", "b"],
        "tag": "new",
        "properties": {"colour": "red"},
        "sharding_key": "a",
        "deliver_at": "2026-11-28T01:02:03.456000+00:00",
        "flag": 7,
    }


def test_a_deletion_needs_a_key_and_no_body() -> None:
    given = columns("topic string, body string, key string, deleted boolean")
    row = {"topic": "orders", "body": None, "key": "a", "deleted": True}

    message = json.loads(given.message_of(row).text)
    assert message["properties"] == {"ERUCA_DELETED": "true"}
    assert message["body"] == {"text": "deleted"}
    with pytest.raises(RowError, match="needs the key that it deletes"):
        given.message_of({**row, "key": None})


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"topic": None, "body": "a"}, "column topic: expected a topic, found None"),
        ({"topic": "orders", "body": None}, "column body: expected a body, found null"),
        ({"topic": "orders", "body": ""}, "column body: expected a body, found an empty one"),
        ({"topic": "o", "body": "a", "keys": ["a", None]}, "column keys: .* found null"),
        ({"topic": "o", "body": "a", "properties": [("a", None)]}, "text for 'a', found null"),
    ],
)
def test_a_row_that_is_no_message_is_refused(row: dict[str, Any], told: str) -> None:
    with pytest.raises(RowError, match=told):
        columns(ALL).message_of(row)


@pytest.mark.parametrize("key", [None, "", "a b", "é", "a\n"])
def test_a_key_must_be_visible(key: str | None) -> None:
    with pytest.raises(RowError, match="column id: expected an idempotency key"):
        columns("body string, id string", "orders", "id").key_of({"id": key})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "option namesrv is missing"),
        ({"namesrv": "http://n", "idempotencyPrefix": "a b"}, "expected 1 to 150 letters"),
        (
            {"namesrv": "http://n", "idempotencyPrefix": "a", "idempotencyKeyColumn": "id"},
            "exclude each other",
        ),
        ({"namesrv": "http://n", "startingOffsets": "latest"}, "is of a reader"),
    ],
)
def test_options_that_cannot_be_are_refused(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], told: str
) -> None:
    monkeypatch.delenv("ERUCA_NAMESRV_URLS", raising=False)
    with pytest.raises(OptionError, match=told):
        SinkOptions.parse(options)
