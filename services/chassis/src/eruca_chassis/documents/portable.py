"""Rewrite a schema so that code generators understand it; the meaning stays.

Clients for other languages are generated from these documents. FastAPI and msgspec write some valid
forms of JSON Schema that break generated code:

- ``anyOf`` of an inline schema and null: for a list, openapi-generator emits an invalid Java class.
  ``type: [array, null]`` has the same meaning. A parameter is never null at all.
- ``default`` in the schema of a request body: openapi-typescript makes the member required, and
  Java's models send it always, which changes settings that nobody named. It moves to the
  description.
- Numbers without ``format``: Java's generator uses 32 bits, and Go's ``float32``. A number that may
  need 64 bits gets ``int64`` or ``double``.
- ``enum`` without ``type``: Go's generator finds no type at all.
- An alternative of a reference and null without a title: openapi-generator invents a type for it,
  and the Java class does not compile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

_REF: Final = "#/components/schemas/"
_NULL: Final = {"type": "null"}
_INT32_MAX: Final = 2**31 - 1


def make_portable(document: Json) -> None:
    """Rewrite *document* in place; a second call changes nothing."""
    named: Json = document["components"]["schemas"]
    operations = [
        operation
        for item in document.get("paths", {}).values()
        for operation in item.values()
        if isinstance(operation, dict)
    ]
    parameters = [parameter for o in operations for parameter in o.get("parameters", ())]
    for parameter in parameters:
        _drop_null(parameter["schema"])
    contents = [content for o in operations for content in _contents(o)]
    for schema in _all((*named.values(), *(o["schema"] for o in (*parameters, *contents)))):
        _name_type(schema)
        _fold_null(schema)
    bodies = [c["schema"] for o in operations for c in _contents(o.get("requestBody", {}))]
    for name in _referred(bodies, named):
        for member in named[name].get("properties", {}).values():
            _describe_default(member)


def _contents(owner: Json) -> Iterator[Json]:
    """Yield the contents and headers, which have schemas, of an operation, a body or an answer."""
    yield from owner.get("content", {}).values()
    yield from owner.get("headers", {}).values()
    for inner in (owner.get("requestBody", {}), *owner.get("responses", {}).values()):
        if inner:
            yield from _contents(inner)


def _all(schemas: Iterable[Any]) -> Iterator[Json]:
    """Yield *schemas* and their nested schemas, inner ones first."""
    for schema in schemas:
        if isinstance(schema, dict):  # additionalProperties may also be true or false
            yield from _all(_inner(schema))
            yield schema


def _inner(schema: Json) -> Iterator[Any]:
    for keyword in ("properties", "patternProperties"):
        yield from schema.get(keyword, {}).values()
    for keyword in ("anyOf", "oneOf", "allOf"):
        yield from schema.get(keyword, ())
    for keyword in ("items", "additionalProperties"):
        yield schema.get(keyword)


def _name_type(schema: Json) -> None:
    """Add a number's format, the type of an enum of texts, and titles of alternatives."""
    kind, choices = schema.get("type"), schema.get("enum", ())
    if kind == "number":
        schema.setdefault("format", "double")
    elif kind == "integer" and schema.get("maximum", _INT32_MAX + 1) > _INT32_MAX:
        schema.setdefault("format", "int64")
    if choices and all(isinstance(choice, str) for choice in choices):
        schema.setdefault("type", "string")
    for name, member in schema.get("properties", {}).items():
        if "anyOf" in member:
            member.setdefault("title", name.replace("_", " ").title())


def _fold_null(schema: Json) -> None:
    """Replace ``anyOf`` of one inline schema and null by that schema with two types."""
    other = _only_alternative_to_null(schema)
    # A reference or an alternative has no type to extend; an enum would need a null.
    if other is not None and isinstance(other.get("type"), str) and "enum" not in other:
        _take_over(schema, {**other, "type": [other["type"], "null"]})


def _drop_null(schema: Json) -> None:
    """Remove null from a parameter's *schema*: a query or a header cannot express it."""
    other = _only_alternative_to_null(schema)
    if other is not None:
        _take_over(schema, other)


def _only_alternative_to_null(schema: Json) -> Json | None:
    others = [other for other in schema.get("anyOf", ()) if other != _NULL]
    return others[0] if len(others) == 1 and len(schema["anyOf"]) == 2 else None


def _take_over(schema: Json, other: Json) -> None:
    """Replace the alternatives in *schema* by *other*; its other members stay."""
    members = {**other, **{name: value for name, value in schema.items() if name != "anyOf"}}
    schema.clear()
    schema.update(members)


def _referred(schemas: Iterable[Json], named: Json) -> set[str]:
    """Return the names of all schemas to which *schemas* refer, directly or not."""
    found: set[str] = set()
    open_schemas = list(schemas)
    while open_schemas:
        references = {schema.get("$ref", "") for schema in _all([open_schemas.pop()])}
        names = {ref.removeprefix(_REF) for ref in references if ref.startswith(_REF)} - found
        found |= names
        open_schemas += [named[name] for name in names]
    return found


def _describe_default(member: Json) -> None:
    default = member.pop("default", None)
    if default is not None:  # a default of null says only that the member is optional
        said = member.get("description", "").rstrip()
        if said and said[-1] not in ".!?":
            said += "."
        member["description"] = f"{said} Default: `{json.dumps(default)}`.".lstrip()
