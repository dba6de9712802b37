"""Schemas that FastAPI does not read from a signature: referred to by name, then added.

FastAPI documents bodies and answers that pydantic reads. A declaration refers to any other by name
(:func:`reference`): bodies that a hot route decodes itself, and structs of msgspec. ``finish`` then
adds their schemas (:func:`add_schemas`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
from pydantic import BaseModel

from eruca.contract.wire import JSON_MEDIA_TYPE
from eruca_chassis.documents.nulls import with_nulls

Json: TypeAlias = dict[str, Any]

_REF: Final = "#/components/schemas/"


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of several alternatives, with its own name.

    Go's generator makes a type that encodes as nothing for alternatives without a name.
    """

    name: str
    description: str
    kinds: tuple[type[msgspec.Struct], ...]


Kind: TypeAlias = type[msgspec.Struct] | type[BaseModel] | Alternatives

_kinds: Final[dict[str, Kind]] = {}  # by name: each that a declaration refers to


def reference(kind: Kind) -> Json:
    """Return a schema that refers to *kind*, whose own schema is added to the document."""
    name = kind.name if isinstance(kind, Alternatives) else kind.__name__
    known = _kinds.setdefault(name, kind)
    assert known == kind, f"two kinds are named {name}: {known} and {kind}"
    return {"$ref": _REF + name}


@dataclass(frozen=True, slots=True)
class Content:
    """One form of a body or an answer: its media type, and its part of the document."""

    media_type: str
    described: Json


def in_json(kind: Kind, example: object) -> Content:
    """Return the content that is *kind* in JSON."""
    return Content(JSON_MEDIA_TYPE, {"schema": reference(kind), "example": with_nulls(example)})


def in_json_as(kind: Kind, examples: Mapping[str, Json]) -> Content:
    """Return the content that is *kind* in JSON, with named examples: ``summary`` and ``value``."""
    return Content(JSON_MEDIA_TYPE, {"schema": reference(kind), "examples": with_nulls(examples)})


def in_octets(media_type: str, description: str | None = None) -> Content:
    """Return content that is bytes, and has no further schema."""
    schema = {"type": "string", "format": "binary"}
    if description is not None:
        schema["description"] = description
    return Content(media_type, {"schema": schema})


def described(*contents: Content) -> Json:
    """Return the object that OpenAPI calls ``content``."""
    return {content.media_type: content.described for content in contents}


def add_schemas(document: Json) -> None:
    """Add the schemas that *document* refers to and does not have yet."""
    schemas = document["components"]["schemas"]
    while missing := {name for name in _names(document) if name in _kinds} - schemas.keys():
        for name in sorted(missing):
            for inner, schema in _schemas(name, _kinds[name]).items():
                schemas.setdefault(inner, schema)


def _schemas(name: str, kind: Kind) -> Json:
    """Return the schema of *kind*, and those that it refers to, by name."""
    if isinstance(kind, Alternatives):
        alternatives = [reference(one) for one in kind.kinds]
        return {name: {"description": kind.description, "anyOf": alternatives}}
    if issubclass(kind, BaseModel):
        schema = kind.model_json_schema(ref_template=_REF + "{model}")
        return {**schema.pop("$defs", {}), name: schema}
    return msgspec.json.schema_components([kind], ref_template=_REF + "{name}")[1]


def _names(value: object) -> Iterator[str]:
    """Yield the name of each schema that *value* refers to, at any depth."""
    if isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str) and target.startswith(_REF):
            yield target.removeprefix(_REF)
        for member in value.values():
            yield from _names(member)
    elif isinstance(value, list):
        for member in value:
            yield from _names(member)
