"""Schemas of JSON bodies, as they are given in files, and all schemas as lakes keep them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eruca.exporting.errors import OptionError
from eruca_spark.bodies.decoders.decoder import Description
from eruca_spark.bodies.given import given_bodies
from eruca_spark.bodies.schema import NO_SCHEMA, BodySchema, stored_schema
from eruca_spark.lake_files import LocalFiles

README = Path(__file__).parents[4] / "spark/README.md"


def test_a_schema_is_an_object_of_types_by_field(tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    file.write_text('{"amount": "double", "tags": "array<string>"}')

    schema = given_bodies([str(file)], None)
    assert isinstance(schema, BodySchema)
    assert schema.columns == {"body_amount": "double", "body_tags": "array<string>"}
    assert BodySchema.from_json(schema.to_json(), "here") == schema


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not JSON"),
        ("[]", "expected an object of 1 to 500 types"),
        ("{}", "expected an object of 1 to 500 types"),
        ('{"a b": "int"}', "field 'a b' of here: expected a name of letters"),
        ('{"1a": "int"}', "field '1a' of here: expected a name of letters"),
        ('{"_corrupt_record": "string"}', "field '_corrupt_record' of here"),
        ('{"_Corrupt_Record": "string"}', "field '_Corrupt_Record' of here"),
        ('{"a": {"type": "int"}}', "field a of here: expected a type of Spark as text"),
        ('{"a": "int", "A": "int"}', "fields a and A of here differ only in case"),
    ],
)
def test_another_text_is_refused(text: str, told: str) -> None:
    with pytest.raises(OptionError, match=f"body-schema: .*{told}"):
        BodySchema.from_json(text, "here")


def test_the_example_of_the_documentation_is_a_schema() -> None:
    section = README.read_text().partition("## Columns from bodies")[2]
    [example] = re.findall(r"```json\n(.*?)```", section, re.DOTALL)[:1]

    assert BodySchema.from_json(example, "README").columns["body_buyer"] == "struct<id:bigint>"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"missing\.json cannot be read"):
        given_bodies([str(tmp_path / "missing.json")], None)


def test_a_lake_without_a_schema_has_an_empty_one(tmp_path: Path) -> None:
    assert stored_schema(LocalFiles(tmp_path)) is NO_SCHEMA


@pytest.mark.parametrize(
    "schema",
    [
        BodySchema({"format": "string", "fields": "string"}),
        BodySchema({"id": "bigint"}, Description("avro", {"": {"type": "record"}})),
        BodySchema(
            {"id": "int"}, Description("protobuf", {"7": "CgA=", "9": "CgA="}, "shop.Order")
        ),
    ],
)
def test_a_lake_returns_the_schema_that_it_keeps(tmp_path: Path, schema: BodySchema) -> None:
    files = LocalFiles(tmp_path)
    files.write("_body_schema.json", schema.to_json())

    assert stored_schema(files) == schema


@pytest.mark.parametrize(
    "text",
    [
        '{"fields": {"id": "int"}}',
        '{"fields": {"id": "int"}, "format": "xml", "schemas": {"": {}}}',
        '{"fields": {"id": "int"}, "format": "avro", "schemas": {}}',
        '{"fields": {"id": "int"}, "format": "avro", "schemas": {"": {}, "7": {}}}',
        '{"fields": {"id": "int"}, "format": "avro", "schemas": {"x": {}}}',
        '{"fields": {"id": "int"}, "format": "protobuf", "schemas": {"": ""}, "message": 1}',
    ],
)
def test_a_damaged_one_is_named(tmp_path: Path, text: str) -> None:
    files = LocalFiles(tmp_path)
    files.write("_body_schema.json", text)

    with pytest.raises(OptionError, match=r"_body_schema\.json of the lake is damaged"):
        stored_schema(files)
