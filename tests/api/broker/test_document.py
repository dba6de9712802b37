"""The broker's OpenAPI document: its examples are what it takes and what it answers."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx
import msgspec
import pytest

from eruca.contract import messages, topics
from eruca.contract.status import BrokerStatus
from eruca_broker.api.examples import messages as examples
from eruca_broker.app import create_app
from eruca_broker.settings import BrokerSettings

SOMETIMES: Final = {"scheduled"}  # only in answers to batches with delayed messages
pytestmark = pytest.mark.anyio

SEND = "/v1/topics/{topic}/messages"
RECORDS = "/v1/topics/{topic}/queues/{queue_id}/records"
PULL = "/v1/topics/{topic}/queues/{queue_id}/messages"
PULL_MANY = "/v1/pull"


@pytest.fixture(name="document", scope="module")
def made_document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return create_app(BrokerSettings(store_dir=tmp_path_factory.mktemp("broker"))).openapi()


async def test_the_examples_are_accepted_as_they_stand(
    client: httpx.AsyncClient, document: dict[str, Any]
) -> None:
    body = document["paths"][SEND]["post"]["requestBody"]["content"]["application/json"]
    for example in body["examples"].values():
        sent = await client.post("/topics/flights/messages", json=example["value"])
        assert sent.status_code == 201

    body = document["paths"][PULL_MANY]["post"]["requestBody"]["content"]["application/json"]
    for example in body["examples"].values():
        pulled = await client.post("/pull", json=example["value"] | {"wait_seconds": 0})
        assert pulled.status_code == 200


def test_the_examples_of_answers_have_the_declared_fields(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for path, method, status in (
        (RECORDS, "post", "201"),
        (PULL, "get", "200"),
        (PULL_MANY, "post", "200"),
    ):
        content = document["paths"][path][method]["responses"][status]["content"]
        answer = content["application/json"]
        schema = schemas[answer["schema"]["$ref"].rsplit("/", 1)[1]]
        assert answer["example"].keys() == schema["properties"].keys() - SOMETIMES, path


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


def test_every_operation_has_an_example(document: dict[str, Any]) -> None:
    """A binary body has none."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if not path.startswith("/v1"):
                continue
            content = operation.get("requestBody", {}).get("content", {})
            for status, response in operation["responses"].items():
                if status < "300":
                    content = content | response.get("content", {})
            if content and all(it["schema"].get("format") == "binary" for it in content.values()):
                continue
            assert "example" in json.dumps(content) or method == "delete", (method, path)
