"""Documents for code generators: each form that breaks one is written in another."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from eruca_chassis.documents.portable import make_portable

NULL = {"type": "null"}


def made(schema: dict[str, Any], *, is_sent: bool = False) -> dict[str, Any]:
    """Return what *schema* is rewritten to, as a named one."""
    named = {"Named": deepcopy(schema)}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Named"}}}
    operation = {"requestBody": {"content": content}} if is_sent else {"responses": {}}
    make_portable({"components": {"schemas": named}, "paths": {"/": {"post": operation}}})
    return named["Named"]


@pytest.mark.parametrize(
    ("schema", "folded"),
    [
        ({"anyOf": [{"type": "string"}, NULL]}, {"type": ["string", "null"]}),
        ({"anyOf": [NULL, {"type": "boolean"}]}, {"type": ["boolean", "null"]}),
        (
            {"anyOf": [{"type": "array", "items": {"type": "string"}}, NULL], "title": "Keys"},
            {"type": ["array", "null"], "items": {"type": "string"}, "title": "Keys"},
        ),
    ],
)
def test_an_inline_schema_or_null_is_one_schema_of_two_types(
    schema: dict[str, Any], folded: dict[str, Any]
) -> None:
    assert made(schema) == folded
    assert made({"properties": {"x": schema}})["properties"]["x"] == folded
    assert made({"items": {"additionalProperties": schema}}) == {
        "items": {"additionalProperties": folded}
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"$ref": "#/components/schemas/Named"}, NULL]},
        {"anyOf": [{"type": "string", "enum": ["a"]}, NULL]},
        {"anyOf": [{"type": "string"}, {"type": "boolean"}, NULL]},
        {"type": "object", "additionalProperties": True, "example": {"anyOf": ["text", NULL]}},
    ],
)
def test_an_alternative_without_a_type_of_its_own_stays(schema: dict[str, Any]) -> None:
    assert made(schema) == schema


@pytest.mark.parametrize(
    ("schema", "size"),
    [
        ({"type": "integer"}, "int64"),
        ({"type": "integer", "maximum": 2**31}, "int64"),
        ({"type": "integer", "maximum": 2**31 - 1}, None),
        ({"type": "number"}, "double"),
        ({"anyOf": [{"type": "integer"}, NULL]}, "int64"),
        ({"type": "string"}, None),
    ],
)
def test_a_number_that_may_need_64_bits_says_so(schema: dict[str, Any], size: str | None) -> None:
    assert made(schema).get("format") == size


def test_a_default_of_a_request_is_said_and_not_sent() -> None:
    schema = {
        "properties": {
            "named": {"type": "string", "default": "rw", "description": "who may do what"},
            "alone": {"type": "boolean", "default": False},
            "unset": {"type": "string", "default": None},
        }
    }

    assert made(schema, is_sent=True)["properties"] == {
        "named": {"type": "string", "description": 'who may do what. Default: `"rw"`.'},
        "alone": {"type": "boolean", "description": "Default: `false`."},
        "unset": {"type": "string"},
    }
    assert made(schema)["properties"]["alone"] == {"type": "boolean", "default": False}


def test_a_member_called_like_a_keyword_is_a_member() -> None:
    """A message has a member ``properties``, and its schema is no list of members."""
    member = {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 128}

    assert made({"properties": {"properties": member}}) == {"properties": {"properties": member}}


def test_a_parameter_is_never_null() -> None:
    parameter = {"name": "key", "in": "query", "schema": {"anyOf": [{"type": "string"}, NULL]}}
    document = {
        "components": {"schemas": {}},
        "paths": {"/": {"get": {"parameters": [parameter], "responses": {}}}},
    }

    make_portable(document)

    assert parameter["schema"] == {"type": "string"}


def test_doing_it_again_changes_nothing() -> None:
    schema = {"properties": {"x": {"anyOf": [{"type": "integer"}, NULL], "default": 1}}}
    document = {"components": {"schemas": {"Named": schema}}, "paths": {}}
    make_portable(document)
    once = deepcopy(document)

    make_portable(document)

    assert document == once
