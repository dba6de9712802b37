"""Schemas of JSON bodies, as they are given in files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eruca.exporting.errors import OptionError
from eruca_spark.body_schema import NO_SCHEMA, BodySchema, given_schema, stored_schema
from eruca_spark.lake_files import LocalFiles

README = Path(__file__).parents[3] / "spark/README.md"


def test_a_schema_is_an_object_of_types_by_field(tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    file.write_text('{"amount": "double", "tags": "array<string>"}')

    schema = given_schema(str(file))
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
        ('{"a": {"type": "int"}}', "field a of here: expected a type of Spark as text"),
        ('{"a": "int", "A": "int"}', "fields a and A of here differ only in case"),
    ],
)
def test_another_text_is_refused(text: str, told: str) -> None:
    with pytest.raises(OptionError, match=f"body-schema: .*{told}"):
        BodySchema.from_json(text, "here")


def test_the_example_of_the_documentation_is_a_schema() -> None:
    section = README.read_text().partition("## Columns from JSON bodies")[2]
    [example] = re.findall(r"```json\n(.*?)```", section, re.DOTALL)[:1]

    assert BodySchema.from_json(example, "README").columns["body_buyer"] == "struct<id:bigint>"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"missing\.json cannot be read"):
        given_schema(str(tmp_path / "missing.json"))


def test_a_lake_without_a_schema_has_an_empty_one(tmp_path: Path) -> None:
    assert stored_schema(LocalFiles(tmp_path)) is NO_SCHEMA
