"""Rewriting a schema so that code generators understand it; its meaning stays.

Clients are generated from these documents for other languages. Some forms that FastAPI and
msgspec write are sound JSON Schema and yet break generated code:

- ``anyOf`` of an inline schema and null: openapi-generator makes an invalid Java class of a list.
  ``type: [array, null]`` says the same. A parameter is never null at all.
- ``default`` in the schema of a request body: openapi-typescript demands the member, and Java's
  models send it unasked, which changes settings that nobody named. It moves to the description.
- Numbers without ``format``: Java's generator takes 32 bits, and Go's ``float32``. A number
  that may need 64 bits says ``int64`` or ``double``.
- ``enum`` without ``type``: Go's generator finds no type at all.
- An alternative of a reference and null without a title: openapi-generator makes a type of its own
  for it, and the Java class does not compile.
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
    """Rewrite *document* in place; doing it again changes nothing."""
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
    """Yield what has a schema in an operation, a body or an answer: its contents and headers."""
    yield from owner.get("content", {}).values()
    yield from owner.get("headers", {}).values()
    for inner in (owner.get("requestBody", {}), *owner.get("responses", {}).values()):
        if inner:
            yield from _contents(inner)


def _all(schemas: Iterable[Any]) -> Iterator[Json]:
    """Yield *schemas* and those inside them, inner ones first."""
    for schema in schemas:
        if isinstance(schema, dict):  # and not the true or false of additionalProperties
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
    """Give a number its size, a list of texts its type, an alternative among members its title."""
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
    """Write ``anyOf`` of one inline schema and null as that schema with two types."""
    other = _only_alternative_to_null(schema)
    # A reference or an alternative has no type to widen; an enum would need a null.
    if other is not None and isinstance(other.get("type"), str) and "enum" not in other:
        _take_over(schema, {**other, "type": [other["type"], "null"]})


def _drop_null(schema: Json) -> None:
    """Leave null out of a parameter's *schema*: a query or a header cannot say it."""
    other = _only_alternative_to_null(schema)
    if other is not None:
        _take_over(schema, other)


def _only_alternative_to_null(schema: Json) -> Json | None:
    others = [other for other in schema.get("anyOf", ()) if other != _NULL]
    return others[0] if len(others) == 1 and len(schema["anyOf"]) == 2 else None


def _take_over(schema: Json, other: Json) -> None:
    """Put *other* in the place of the alternatives of *schema*, whose own words stay."""
    members = {**other, **{name: value for name, value in schema.items() if name != "anyOf"}}
    schema.clear()
    schema.update(members)


def _referred(schemas: Iterable[Json], named: Json) -> set[str]:
    """Return the names of all that *schemas* refer to, directly or not."""
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
    if default is not None:  # null says no more than that the member may be left out
        said = member.get("description", "").rstrip()
        if said and said[-1] not in ".!?":
            said += "."
        member["description"] = f"{said} Default: `{json.dumps(default)}`.".lstrip()
