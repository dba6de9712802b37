"""Transactions: requests that make no sense are refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from support.transaction_calls import BY_PRODUCER, GROUP, act, begin, done, listed, new, pull, shown

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"topic": ""}, "/body/topic"),
        ({"topic": "a b"}, "/body/topic"),
        ({"producer_group": "a b"}, "/body/producer_group"),
        ({"producer_group": "a\n"}, "/body/producer_group"),
        ({"producer_group": None}, "/body/producer_group"),
        ({"queue_id": -1}, "/body/queue_id"),
        ({"check_immunity_seconds": -1}, "/body/check_immunity_seconds"),
        ({"check_immunity_seconds": 1e9}, "/body/check_immunity_seconds"),
        ({"extra": 1}, "/body/extra"),
        ({"message": {"message_id": "a/b"}}, "/body/message/message_id"),
        ({"message": {"message_id": ".."}}, "/body/message/message_id"),
        ({"message": {"message_id": "a b"}}, "/body/message/message_id"),
        ({"message": {"message_id": "a\0"}}, "/body/message/message_id"),
        ({"message": {"message_id": "a\x7f"}}, "/body/message/message_id"),
        ({"message": {"message_id": "x" * 256}}, "/body/message/message_id"),
        ({"message": {"body": {}}}, "/body/message/body"),
        ({"message": {"delay_seconds": 1, "delay_level": 1}}, "/body/message/delay_level"),
        ({"message": {"properties": {"TRAN_MSG": "x"}}}, "/body/message/properties/TRAN_MSG"),
    ],
)
async def test_a_beginning_that_makes_no_sense_is_refused_and_says_where(
    client: httpx.AsyncClient, fields: dict[str, Any], pointer: str
) -> None:
    answer = await client.post("/transactions", json=new(**fields))

    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert await listed(client) == []


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("commit", {}),
        ("commit", {"producer_group": None}),
        ("commit", {"by": "operator"}),
        ("commit", {"by": "operator", "reason": ""}),
        ("commit", {"by": "limit", "producer_group": GROUP}),
        ("rollback", {"producer_group": GROUP, "check_number": 1}),
        ("rollback", {"producer_group": GROUP, "by": "check", "check_number": 0}),
        ("rollback", {"producer_group": GROUP, "reason": "x" * 1025}),
        ("rollback", {"producer_group": GROUP, "reason": "a\0"}),
        ("rollback", {"producer_group": GROUP, "by": "limit"}),
        ("check", {"number": 0, "checker": "c"}),
        ("check", {"number": 1, "checker": "\0"}),
        ("check", {"number": 1.5, "checker": "c"}),
        ("check", {"number": "1st", "checker": "c"}),
        ("check", {"number": 101, "checker": "c"}),
        ("check", {"number": 1, "checker": ""}),
        ("check", {"number": 1}),
        ("expire", {"checks": -1, "checker": "c"}),
        ("expire", {"checks": 0, "checker": "c", "outcome": "commit"}),
    ],
)
async def test_a_decision_that_makes_no_sense_changes_nothing(
    client: httpx.AsyncClient, verb: str, body: dict[str, Any]
) -> None:
    transaction_id = (await begin(client))["transaction_id"]

    answer = await act(client, transaction_id, verb, body)

    assert answer.status_code == 422, answer.text
    assert await listed(client) == [transaction_id]
    assert (await shown(client, transaction_id))["checks"] == 0


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"null", b"[" * 5_000])
@pytest.mark.parametrize("path", ["/transactions", "/transactions/x:commit"])
async def test_a_body_that_is_no_request_is_refused(
    client: httpx.AsyncClient, path: str, body: bytes
) -> None:
    answer = await client.post(path, content=body, headers={"content-type": "application/json"})

    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("name", ["a:b", ":commit", "ü😀", "a%2Fb?c#d", "x" * 255, "~'\"<>\\;+"])
async def test_an_id_may_be_any_word_that_fits_into_a_path(
    client: httpx.AsyncClient, name: str
) -> None:
    receipt = await begin(client, message={"message_id": name})
    path = quote(name, safe="")

    assert receipt["transaction_id"] == name
    assert (await shown(client, path))["transaction_id"] == name
    await done(client, path, "check", {"number": 1, "checker": "c"})
    assert (await done(client, path, "commit"))["transaction_id"] == name
    [message] = await pull(client)
    assert message["message_id"] == name


@pytest.mark.parametrize("verb", ["commit", "rollback", "check", "expire", None])
@pytest.mark.parametrize("name", ["%00", "a%2Fb", "%20", "%FF", "x" * 256, "..%2F..", "%"])
async def test_an_id_that_cannot_be_one_is_refused(
    client: httpx.AsyncClient, name: str, verb: str | None
) -> None:
    bodies = {"check": {"number": 1, "checker": "c"}, "expire": {"checks": 0, "checker": "c"}}
    if verb is None:
        answer = await client.get(f"/transactions/{name}")
    else:
        answer = await act(client, name, verb, bodies.get(verb, BY_PRODUCER))

    assert answer.status_code in (400, 404, 405, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


async def test_unknown_verbs_methods_and_cursors_are_refused(client: httpx.AsyncClient) -> None:
    await begin(client, message={"message_id": "x"})
    for method, path, status in (
        ("POST", "/transactions/x:forget", 405),
        ("POST", "/transactions/x", 405),
        ("GET", "/transactions/x:commit", 404),
        ("PUT", "/transactions", 405),
        ("DELETE", "/transactions/x", 405),
        ("GET", "/transactions?cursor=nonsense", 422),
        ("GET", "/transactions?state=committed", 422),
        ("GET", "/transactions?limit=0", 422),
        ("POST", "/transactions?topic=a", 422),
    ):
        answer = await client.request(method, path, json=new() if method == "POST" else None)
        assert answer.status_code == status, (method, path, answer.text)
    assert (await act(client, "x" * 300, "commit")).status_code == 404


async def test_a_message_with_no_room_for_what_waiting_needs_is_too_large(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post(
        "/transactions", json=new(message={"properties": {"p": "x" * 32_500}})
    )

    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
    assert await listed(client) == []


async def test_an_idempotency_key_is_refused_and_not_ignored(client: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": '"order-17"'}
    refused = await client.post("/transactions", json=new(), headers=headers)

    assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")
    assert refused.json()["errors"][0]["pointer"] == "/header/idempotency-key"
    assert "message_id" in refused.json()["fix"]
