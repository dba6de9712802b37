"""Schemas that FastAPI does not read: each that is referred to is in the document, once."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct
from pydantic import BaseModel

from eruca_chassis.documents.schemas import (
    Alternatives,
    add_schemas,
    described,
    in_json,
    in_json_as,
    in_octets,
    reference,
)


class Leaf(Struct):
    """A leaf."""

    size: int


class Tree(Struct):
    """Has leaves."""

    leaves: list[Leaf]


class Root(BaseModel):
    """Is below."""

    depth: int


class Plant(BaseModel):
    """Has a root."""

    root: Root


GROWTH = Alternatives("Growth", "A leaf, or a tree.", (Leaf, Tree))


def document_of(schema: dict[str, Any], **schemas: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"paths": {"/": {"get": [{"schema": schema}]}}, "components": {"schemas": schemas}}


@pytest.mark.parametrize(
    ("kind", "names"),
    [(Tree, {"Tree", "Leaf"}), (Plant, {"Plant", "Root"}), (GROWTH, {"Growth", "Tree", "Leaf"})],
)
def test_what_is_referred_to_is_added_with_all_that_it_refers_to(
    kind: Any,  # noqa: ANN401 - a kind
    names: set[str],
) -> None:
    document = document_of(reference(kind))

    add_schemas(document)

    assert document["components"]["schemas"].keys() == names


def test_a_schema_that_is_there_stays() -> None:
    document = document_of(reference(Tree), Leaf={"title": "another"})

    add_schemas(document)

    assert document["components"]["schemas"]["Leaf"] == {"title": "another"}


def test_two_kinds_of_one_name_are_refused_where_they_are_declared() -> None:
    reference(Leaf)
    other = type("Leaf", (Struct,), {})

    with pytest.raises(AssertionError, match="Leaf"):
        reference(other)


def test_content_has_a_media_type_each() -> None:
    contents = described(in_json(Leaf, {"size": 1}), in_octets("image/png", "A picture."))

    assert contents["application/json"]["example"] == {"size": 1}
    assert contents["image/png"]["schema"]["description"] == "A picture."
    named = described(in_json_as(Leaf, {"one": {"value": {"size": 1}}}))
    assert named["application/json"]["examples"] == {"one": {"value": {"size": 1}}}
