"""Times in answers are written alike, whichever service answers: ``eruca.contract.times``."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from pydantic import BaseModel, PlainSerializer

import eruca.contract
from eruca.contract.fields import Request
from eruca.contract.instant_texts import INSTANT_PATTERN
from support.openapi_documents import SERVICES, made_document


def answers() -> list[type[BaseModel]]:
    """Return every model of the contract that is no request."""
    for module in pkgutil.iter_modules(eruca.contract.__path__):
        import_module(f"eruca.contract.{module.name}")
    return [
        model
        for model in _subclasses(BaseModel)
        if model.__module__.startswith("eruca.contract.") and not issubclass(model, Request)
    ]


def _subclasses(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for child in model.__subclasses__():
        yield child
        yield from _subclasses(child)


def has_bare_datetime(hint: Any, *, is_written: bool = False) -> bool:  # noqa: ANN401
    """Tell whether a type has a datetime in it that nothing says how to write."""
    if hint is datetime:
        return not is_written
    marks = getattr(hint, "__metadata__", ())
    is_written = is_written or any(isinstance(mark, PlainSerializer) for mark in marks)
    return any(has_bare_datetime(part, is_written=is_written) for part in get_args(hint))


def test_no_answer_has_a_bare_datetime() -> None:
    found = answers()
    assert found

    bare = [
        f"{model.__module__}.{model.__name__}.{name}"
        for model in found
        for name, hint in get_type_hints(model, include_extras=True).items()
        if name in model.model_fields and has_bare_datetime(hint)
    ]

    assert bare == []


def test_a_bare_datetime_is_seen_wherever_it_stands() -> None:
    assert has_bare_datetime(datetime)
    assert has_bare_datetime(dict[str, list[datetime] | None])


@pytest.mark.parametrize("service", SERVICES)
def test_the_documents_say_how_every_time_is_written(service: str) -> None:
    document = made_document(service)
    asked, answered = set[str](), set[str]()
    for item in document["paths"].values():
        for operation in item.values():
            if isinstance(operation, dict) and "responses" in operation:
                references(document, operation.get("requestBody", {}), asked)
                references(document, operation["responses"], answered)
    schemas = document["components"]["schemas"]

    unlike = [
        f"{name}.{field}"
        for name in sorted(answered - asked)
        for field, schema in schemas[name].get("properties", {}).items()
        if is_time(field, schema) and INSTANT_PATTERN not in patterns(schema)
    ]

    assert unlike == []


def references(document: dict[str, Any], value: object, found: set[str]) -> None:
    """Add the names of all schemas that *value* leads to."""
    if isinstance(value, dict):
        name = str(value.get("$ref", "")).rpartition("/")[2]
        if name and name not in found:
            found.add(name)
            references(document, document["components"]["schemas"][name], found)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            references(document, item, found)


def is_time(field: str, schema: object) -> bool:
    return field.endswith("_at") or "date-time" in str(schema)


def patterns(schema: object) -> set[str]:
    text = msgspec.json.encode(schema)
    return {INSTANT_PATTERN} if msgspec.json.encode(INSTANT_PATTERN) in text else set()
