"""The services' OpenAPI documents: a change of contract is a visible diff, and a sound one.

After a change that is meant, write the documents again and commit them::

    .venv/bin/python tests/support/openapi_documents.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from eruca.contract.errors import PROBLEM_MEDIA_TYPE
from support.openapi_documents import SERVICES, kept_document, made_document
from support.openapi_examples import check_schema

JSON = "application/json"
METHODS = {"get", "put", "post", "delete", "patch"}


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in METHODS:
                yield f"{method.upper()} {path}", operation


@pytest.mark.parametrize("service", SERVICES)
def test_the_document_is_the_one_that_is_kept(service: str) -> None:
    assert made_document(service) == kept_document(service)


@pytest.mark.parametrize("service", SERVICES)
def test_every_operation_is_named_described_and_tagged(service: str) -> None:
    document = made_document(service)
    declared_tags = {tag["name"] for tag in document["tags"]}
    identities = set()
    for name, operation in operations(document):
        assert re.fullmatch(r"[a-z][A-Za-z]+", operation["operationId"]), name
        assert operation["summary"], name
        assert operation["description"], name
        assert operation["tags"], name
        assert set(operation["tags"]) <= declared_tags, name
        assert operation["operationId"] not in identities, name
        identities.add(operation["operationId"])


@pytest.mark.parametrize("service", SERVICES)
def test_every_refusal_is_a_problem_with_an_example(service: str) -> None:
    for name, operation in operations(made_document(service)):
        for status, response in operation["responses"].items():
            assert response["description"], (name, status)
            if status >= "400":
                assert response["content"].keys() == {PROBLEM_MEDIA_TYPE}, (name, status)
                examples = response["content"][PROBLEM_MEDIA_TYPE]["examples"]
                assert examples, (name, status)
                for code, example in examples.items():
                    fix = example["value"]["fix"]
                    assert fix is None or fix.isprintable(), (name, status, code)


@pytest.mark.parametrize("service", SERVICES)
def test_a_get_only_reads_as_its_operation_id_says(service: str) -> None:
    """A foreign page's picture is fetched by GET, so no GET takes, makes or ends anything."""
    reading = re.compile(r"(get|list|find|describe|plan|export|pull|read)[A-Z]")
    nouns = {"health", "readiness", "metrics"}
    for name, operation in operations(made_document(service)):
        if name.startswith("GET "):
            identity = operation["operationId"]
            assert identity in nouns or reading.match(identity), name


@pytest.mark.parametrize("service", SERVICES)
def test_what_any_service_may_refuse_is_declared(service: str) -> None:
    for name, operation in operations(made_document(service)):
        refused = {"421"}  # for a host that the service does not know
        if not name.startswith("GET "):
            refused |= {"403"}  # to a page of another site
        if "requestBody" in operation:
            refused |= {"400", "413", "415", "422", "429"}
        if " /v1" in name:
            refused |= {"422", "503"}  # a parameter it does not have; while it starts and stops
        assert refused <= operation["responses"].keys(), name


@pytest.mark.parametrize("service", SERVICES)
def test_everything_that_must_be_sent_has_an_example(service: str) -> None:
    """So that an explorer's page can be tried out as it opens. A binary body has none."""
    for name, operation in operations(made_document(service)):
        for parameter in operation.get("parameters", ()):
            assert not parameter.get("required") or has_example(parameter), (name, parameter)
        body = operation.get("requestBody", {}).get("content", {})
        for media_type, content in body.items():
            assert media_type != JSON or has_example(content), name


@pytest.mark.parametrize("service", SERVICES)
def test_every_answer_in_json_has_an_example(service: str) -> None:
    for name, operation in operations(made_document(service)):
        for status, response in operation["responses"].items():
            content = response.get("content", {}).get(JSON)
            assert content is None or has_example(content), (name, status)


@pytest.mark.parametrize("service", SERVICES)
def test_every_reference_leads_somewhere(service: str) -> None:
    document = made_document(service)
    schemas = document["components"]["schemas"]

    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))

    assert references <= schemas.keys()
    assert not [name for name in schemas if name.startswith("Body_")]


@pytest.mark.parametrize("service", SERVICES)
def test_every_number_and_text_of_a_request_has_a_limit(service: str) -> None:
    for name, operation in operations(made_document(service)):
        for parameter in operation.get("parameters", ()):
            for schema in alternatives(parameter["schema"]):
                match schema["type"]:
                    case "integer" | "number":
                        limited = {"maximum", "exclusiveMaximum"} & schema.keys()
                    case "string":
                        limited = {"maxLength", "enum", "const", "format"} & schema.keys()
                    case _:
                        limited = {"not a scalar"}
                assert limited, (name, parameter["name"])


@pytest.mark.parametrize("service", SERVICES)
def test_every_example_is_what_its_schema_wants(service: str) -> None:
    document = made_document(service)
    for _, operation in operations(document):
        owners = [*operation.get("parameters", ())]
        for bearer in (operation.get("requestBody", {}), *operation["responses"].values()):
            owners += [*bearer.get("content", {}).values(), *bearer.get("headers", {}).values()]
        for owner in owners:
            named = [example["value"] for example in owner.get("examples", {}).values()]
            for value in [*named, *([owner["example"]] if "example" in owner else [])]:
                check_schema(document, owner["schema"], value)


def test_how_far_a_log_has_been_read_is_said_in_the_same_words_everywhere() -> None:
    projection = fields_of("broker", "ProjectionStatus")
    checker = fields_of("txn-checker", "FollowedBroker")
    query = fields_of("query", "FollowedLog")

    assert {"log_offset", "behind_bytes"} <= projection
    assert {"log_offset", "behind_bytes"} <= fields_of("query", "ReadModelPosition")
    assert checker <= query


@pytest.mark.parametrize("service", SERVICES)
def test_the_document_is_sound_openapi(service: str) -> None:
    OpenAPIV31SpecValidator(made_document(service)).validate()


def fields_of(service: str, schema: str) -> set[str]:
    return set(made_document(service)["components"]["schemas"][schema]["properties"])


def has_example(owner: dict[str, Any]) -> bool:
    return "example" in owner or bool(owner.get("examples"))


def alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    found = schema.get("anyOf", [schema])
    return [s for s in found if s.get("type") not in (None, "null")]
