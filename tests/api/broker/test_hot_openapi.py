"""The hot routes' declaration says what their handlers do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from fastapi.routing import iter_route_contexts

from eruca.contract import messages, topics
from eruca.contract.messages import NewMessage, NewMessages
from eruca.contract.status import BrokerStatus
from eruca_broker.api.examples import messages as examples
from eruca_broker.api.hot import pull
from eruca_broker.api.hot.octets import DESCRIBING_PARAMETERS
from eruca_broker.api.hot.openapi import add_hot_operations
from eruca_broker.api.hot.routes import (
    MULTI_PULL_PATH,
    PULL_PATH,
    RECORDS_PATH,
    SEND_PATH,
    HotHandlers,
)
from eruca_broker.app import create_app
from eruca_broker.settings import BrokerSettings

pytestmark = pytest.mark.anyio


@pytest.fixture
def declared() -> dict[str, Any]:
    document: dict[str, Any] = {}
    add_hot_operations(document)
    return document


def test_what_is_dispatched_is_declared_and_what_is_declared_by_hand_is_dispatched(
    declared: dict[str, Any], tmp_path: Path
) -> None:
    dispatched = {(route.method, route.template) for route in HotHandlers().routes.routes}

    assert _operations(declared) <= dispatched
    assert dispatched <= _operations(create_app(BrokerSettings(store_dir=tmp_path)).openapi())


def test_fastapi_answers_none_of_them_itself(tmp_path: Path) -> None:
    app = create_app(BrokerSettings(store_dir=tmp_path))
    merged = app.openapi()

    assert set(merged["paths"][SEND_PATH]) == {"get", "post"}  # find by key, and the hot route
    for path, method in ((RECORDS_PATH, "post"), (PULL_PATH, "get"), (MULTI_PULL_PATH, "post")):
        assert set(merged["paths"][path]) == {method}


def test_the_router_knows_each_hot_route_once(tmp_path: Path) -> None:
    app = create_app(BrokerSettings(store_dir=tmp_path))
    known = [
        (method, context.path)
        for context in iter_route_contexts(app.routes)
        for method in context.methods or ()
    ]

    for route in HotHandlers().routes.routes:
        assert known.count((route.method, route.template)) == 1, route.template


def _operations(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, item in document["paths"].items() for method in item}


@pytest.mark.parametrize(
    ("path", "method", "known"),
    [
        (SEND_PATH, "post", DESCRIBING_PARAMETERS),
        (RECORDS_PATH, "post", frozenset()),
        (PULL_PATH, "get", pull.PULL_PARAMETERS),
        (MULTI_PULL_PATH, "post", frozenset()),
    ],
)
def test_each_declared_parameter_is_taken_and_no_other(
    declared: dict[str, Any], path: str, method: str, known: frozenset[str]
) -> None:
    parameters = declared["paths"][path][method]["parameters"]

    assert {p["name"] for p in parameters if p["in"] == "query"} == known
    in_path = {p["name"] for p in parameters if p["in"] == "path"}
    assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}


async def test_the_declared_limits_are_the_handlers(
    client: httpx.AsyncClient, declared: dict[str, Any]
) -> None:
    await client.put("/topics/flights", json={})
    path = PULL_PATH.removeprefix("/v1").format(topic="flights", queue_id=0)
    for parameter in declared["paths"][PULL_PATH]["get"]["parameters"]:
        schema, name = parameter["schema"], parameter["name"]
        if parameter["in"] != "query" or "maximum" not in schema:
            continue
        for value, status in (
            (schema["minimum"], 200),
            (schema["minimum"] - 1, 422),
            (schema["maximum"], 200),
            (schema["maximum"] + 1, 422),
        ):
            if name == "wait_seconds" and value == schema["maximum"]:
                continue  # it would be waited for
            answer = await client.get(path, params={"offset": 0, name: value})
            assert answer.status_code == status, (name, value)


async def test_the_examples_are_accepted_as_they_stand(
    client: httpx.AsyncClient, declared: dict[str, Any]
) -> None:
    body = declared["paths"][SEND_PATH]["post"]["requestBody"]["content"]["application/json"]
    for example in body["examples"].values():
        sent = await client.post("/topics/flights/messages", json=example["value"])
        assert sent.status_code == 201

    pull_many = declared["paths"][MULTI_PULL_PATH]["post"]["requestBody"]["content"]
    example = pull_many["application/json"]["example"] | {"wait_seconds": 0}
    pulled = await client.post("/pull", json=example)
    assert pulled.status_code == 200


def test_the_examples_of_answers_have_the_declared_fields(declared: dict[str, Any]) -> None:
    schemas = declared["components"]["schemas"]
    for path, method, status in (
        (RECORDS_PATH, "post", "201"),
        (PULL_PATH, "get", "200"),
        (MULTI_PULL_PATH, "post", "200"),
    ):
        content = declared["paths"][path][method]["responses"][status]["content"]
        answer = content["application/json"]
        schema = schemas[answer["schema"]["$ref"].rsplit("/", 1)[1]]
        assert answer["example"].keys() == schema["properties"].keys(), path


def test_the_schemas_are_those_of_the_structs_that_decode(declared: dict[str, Any]) -> None:
    _, components = msgspec.json.schema_components(
        (NewMessage, NewMessages), ref_template="#/components/schemas/{name}"
    )

    for name, schema in components.items():
        assert declared["components"]["schemas"][name] == json.loads(json.dumps(schema))


def test_the_examples_are_of_the_models_they_stand_for() -> None:
    for model, example in (
        (topics.TopicConfig, examples.TOPIC),
        (topics.TopicSettings, examples.TOPIC_SETTINGS["plain"]["value"]),
        (topics.TopicSettings, examples.TOPIC_SETTINGS["ordered"]["value"]),
        (topics.TopicList, examples.TOPIC_LIST),
        (topics.TopicQueues, examples.TOPIC_QUEUES),
        (topics.OffsetByTime, examples.OFFSET_BY_TIME),
        (BrokerStatus, examples.STATUS),
    ):
        model.model_validate(example, extra="forbid")
    msgspec.json.decode(json.dumps(examples.LOG_ANSWER), type=messages.LogAnswer)
    found = json.dumps(examples.FOUND_MESSAGES)
    [decoded] = msgspec.json.decode(found, type=messages.FoundMessages).messages
    assert json.loads(msgspec.json.encode(decoded)) == examples.MESSAGE


def test_every_operation_has_an_example(tmp_path: Path) -> None:
    document = create_app(BrokerSettings(store_dir=tmp_path)).openapi()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if not path.startswith("/v1"):
                continue
            content = operation.get("requestBody", {}).get("content", {})
            for status, response in operation["responses"].items():
                if status < "300":
                    content = content | response.get("content", {})
            assert "example" in json.dumps(content) or method == "delete", (method, path)
