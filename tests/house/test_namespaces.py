"""Names in all documents: a member or a parameter with a name in it is one that is renamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from eruca.contract.access import ResourceKind
from eruca_access.namespaces.json_names import (
    GROUP_MEMBERS,
    HANDLE_MEMBERS,
    RESOURCE_MEMBERS,
    TOPIC_KEYS,
    TOPIC_LISTS,
    TOPIC_MEMBERS,
)
from eruca_access.namespaces.naming import ANSWER_TYPES, UNSUPPORTED
from support.openapi_documents import SERVICES, kept_document

RENAMED: Final = (
    TOPIC_MEMBERS | GROUP_MEMBERS | HANDLE_MEMBERS | TOPIC_LISTS | TOPIC_KEYS | RESOURCE_MEMBERS
)
NO_NAMES: Final = {
    "topic_id": "a number that a broker has given a topic",
    "group_state": "a choice",
    "ordered_topics": "of a registration, which no caller with a namespace may make",
    "order_topics": "of a registration",
    "ordered_topics_digest": "of a registration",
}
NAMED_KINDS: Final = {ResourceKind.TOPIC, ResourceKind.GROUP}


def members(schema: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield the names of all members in a schema, at any depth, that are or hold texts."""
    if isinstance(schema, dict):
        for name, inner in (schema.get("properties") or {}).items():
            if isinstance(inner, dict) and set(kinds(inner)) & {"string", "array", "object", "ref"}:
                yield name
        for inner in schema.values():
            yield from members(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from members(inner)


def kinds(schema: dict[str, Any]) -> Iterator[str]:
    if "$ref" in schema:
        yield "ref"
    kind = schema.get("type", [])
    yield from [kind] if isinstance(kind, str) else kind
    for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from kinds(one)


def open_operations(service: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the operations that callers with a namespace may use, whatever rules say."""
    needs = SERVICES[service]().needs
    for item in kept_document(service)["paths"].values():
        for operation in item.values():
            need = needs[operation["operationId"]]
            is_open = not need.is_public and {on.kind for on in need.ons} <= NAMED_KINDS
            if is_open and operation["operationId"] not in UNSUPPORTED:
                yield operation["operationId"], operation


@pytest.mark.parametrize("service", SERVICES)
def test_each_member_about_topics_or_groups_is_renamed(service: str) -> None:
    document = kept_document(service)
    found = set(members(document["components"]["schemas"]))
    found |= {
        parameter["name"]
        for item in document["paths"].values()
        for operation in item.values()
        for parameter in operation.get("parameters", ())
    }
    about = {name for name in found if "topic" in name or "group" in name}
    broker_groups = {"groups"} if service == "controller" else set()
    lists = {"groups", "dead_letters"}  # of objects, whose own members are renamed
    assert about - RENAMED - NO_NAMES.keys() - lists - broker_groups == set()


@pytest.mark.parametrize("service", SERVICES)
def test_answers_to_callers_with_a_namespace_can_be_renamed(service: str) -> None:
    for name, operation in open_operations(service):
        types = {
            media_type
            for status, answer in operation["responses"].items()
            if status.startswith("2")
            for media_type in answer.get("content", {})
        }
        assert types <= ANSWER_TYPES, name


def test_unsupported_operations_exist() -> None:
    documents = (kept_document(service) for service in SERVICES)
    names = {
        operation["operationId"]
        for document in documents
        for item in document["paths"].values()
        for operation in item.values()
    }
    assert UNSUPPORTED.keys() <= names
