"""Mistakes that people make when they try the API by hand: the answer shows the right form."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pydantic
import pytest
from pydantic import TypeAdapter

from eruca import Message
from eruca.contract.errors import ValidationError
from eruca.contract.fields import BrokerName
from eruca.contract.groups import ClientId
from support.brokers import JSON, client_of, open_broker

pytestmark = pytest.mark.anyio

SEND = "/topics/orders/messages"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with open_broker(tmp_path) as app, client_of(app) as client:
        (await client.put("/topics/orders", json={})).raise_for_status()
        yield client


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ('{"body": "hello"}', 422, "/body/body: Expected `object`, got `str`"),
        ('{"body": {"order": 1}}', 422, "/body/body/order: unknown field"),
        ('{"body": {}}', 422, "/body/body: expected exactly one of text, json and base64"),
        ('{"body": {"text": 5}}', 422, "/body/body/text: Expected `str`, got `int`"),
        ('{"text": "hello"}', 422, "/body/text: unknown field"),
        ('"hello"', 422, "/body: Expected `object`, got `str`"),
        ('[{"body": {"text": "x"}}]', 422, "/body: Expected `object`, got `array`"),
        ('{"messages": ["hello"]}', 422, "/body/messages/0: Expected `object`, got `str`"),
        (
            '{"body": {"text": "x"}, "tags": "a"}',
            422,
            "/body/tags: unknown field; did you mean 'tag'?",
        ),
        ('{"body": {"text": "x"}, "keys": "a"}', 422, "/body/keys: Expected `array`, got `str`"),
        ("hello", 400, "the body is not JSON"),
        ("{'body': {'text': 'x'}}", 400, "the body is not JSON"),
        ("", 400, "the body is not JSON"),
    ],
)
async def test_a_send_without_a_message_is_shown_one(
    client: httpx.AsyncClient, body: str, status: int, told: str
) -> None:
    refused = await client.post(SEND, content=body, headers=JSON)

    problem = refused.json()
    assert (refused.status_code, problem["detail"][: len(told)]) == (status, told)
    shown = json.loads(_json_in(problem["fix"]))
    assert (await client.post(SEND, json=shown)).status_code == 201


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/groups/g/deliveries", "{}"),
        ("/groups/g/deliveries:ack", '{"handle": "x"}'),
        ("/groups/g/deliveries:ack", '{"handles": "x"}'),
        ("/groups/g/offsets:reset", '{"topic": "orders"}'),
        ("/groups/g/offsets:reset", "to the end"),
        ("/groups/g/dead-letters:redrive", ""),
        ("/groups/g/retries", "[]"),
        ("/groups/g/locks", "{}"),
        ("/pull", "{}"),
        ("/transactions", '{"body": {"text": "x"}}'),
        ("/transactions/t:commit", "[]"),
    ],
)
async def test_another_body_is_answered_with_one_of_the_operation(
    client: httpx.AsyncClient, path: str, body: str
) -> None:
    refused = await client.post(path, content=body, headers=JSON)

    assert refused.status_code in (400, 422), refused.text
    shown = _json_in(refused.json()["fix"])
    again = await client.post(path, content=shown, headers=JSON)
    is_shown_again = again.is_error and "for example" in str(again.json()["fix"])
    assert not is_shown_again, again.text  # it is refused for what it names, if at all


def _json_in(fix: str) -> str:
    found = re.search(r"\{.*\}", fix)
    assert found, fix
    return found[0]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/topics/a%20b/queues/0/messages?offset=0", None),
        ("POST", "/topics/a%20b/messages", {"body": {"text": "x"}}),
        ("POST", "/pull", {"queues": [{"topic": "a b", "queue_id": 0, "offset": 0}]}),
    ],
)
async def test_a_wrong_name_of_a_topic_is_answered_with_what_names_are_made_of(
    client: httpx.AsyncClient, method: str, path: str, body: object
) -> None:
    refused = await client.request(method, path, json=body)

    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "validation-failed")
    assert problem["detail"] == "topic: 'a b' contains a character that is not allowed"
    assert problem["fix"] == "use up to 127 letters, digits, %, |, _ and -"


@pytest.mark.parametrize("name", [".", "..", "..."])
async def test_an_id_of_dots_alone_is_refused_where_it_is_made(
    client: httpx.AsyncClient, name: str
) -> None:
    """In a path it would name another resource, so nobody could ask for it."""
    message = {"body": {"text": "x"}, "message_id": name}
    half = {"topic": "orders", "producer_group": "g", "message": message}
    for path, body in (
        ("/topics/orders/messages", message),
        ("/topics/orders/messages", {"messages": [message]}),
        ("/transactions", half),
    ):
        refused = await client.post(path, json=body)

        assert refused.status_code == 422, refused.text
        assert "message_id" in refused.json()["errors"][0]["pointer"]
    octets = await client.post(
        f"/topics/orders/messages?message_id={name}",
        content=b"x",
        headers={"content-type": "application/octet-stream"},
    )
    assert octets.status_code == 422, octets.text
    with pytest.raises(ValidationError):
        Message("orders", b"x", message_id=name)
    with pytest.raises(pydantic.ValidationError):
        TypeAdapter(ClientId).validate_python(name)
    with pytest.raises(pydantic.ValidationError):
        TypeAdapter(BrokerName).validate_python(name)
    assert TypeAdapter(ClientId).validate_python(f"{name}a{name}")


async def test_an_answer_without_content_describes_none(client: httpx.AsyncClient) -> None:
    deleted = await client.delete("/topics/orders")

    assert (deleted.status_code, deleted.content) == (204, b"")
    assert deleted.headers.keys() == {"x-request-id"}
