"""Sending one message as octets, as `curl --data-binary` does."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from eruca.contract.limits import BODY_SIZE_MAX

pytestmark = pytest.mark.anyio

OCTETS = {"content-type": "application/octet-stream"}


async def send(client: httpx.AsyncClient, body: bytes, **described: Any) -> httpx.Response:  # noqa: ANN401
    return await client.post(
        "/topics/pictures/messages", params=described, content=body, headers=OCTETS
    )


async def message_at(client: httpx.AsyncClient, place: dict[str, Any]) -> dict[str, Any]:
    answer = await client.get(
        f"/topics/pictures/queues/{place['queue_id']}/messages",
        params={"offset": place["queue_offset"]},
    )
    [message] = answer.json()["messages"]
    found: dict[str, Any] = message
    return found


async def test_a_body_is_stored_as_it_came_and_what_the_query_says_beside_it(
    client: httpx.AsyncClient,
) -> None:
    sent = await send(
        client,
        b"\x89PNG\r\n\x00\xff",
        tag="png",
        keys=["17", "Grüße"],
        properties=["camera=left", "formula=a=b & c"],
        sharding_key="c-4",
        message_id="mine",
        flag=-7,
    )
    assert sent.status_code == 201, sent.text
    message = await message_at(client, sent.json())

    assert message["body"] == {"base64": "iVBORw0KAP8="}
    assert (message["tag"], message["keys"]) == ("png", ["17", "Grüße"])
    assert message["properties"] == {"camera": "left", "formula": "a=b & c"}
    assert (message["sharding_key"], message["message_id"]) == ("c-4", "mine")
    assert message["flag"] == -7


async def test_what_looks_like_json_stays_what_it_is(client: httpx.AsyncClient) -> None:
    body = '{"messages": [{"body": {"text": "one"}}]}'
    sent = await send(client, body.encode(), queue_id=2)

    assert sent.json()["queue_id"] == 2
    assert (await message_at(client, sent.json()))["body"] == {"text": body}


async def test_it_can_be_delivered_later_and_sent_under_a_key(client: httpx.AsyncClient) -> None:
    later = await send(client, b"x", delay_seconds="6e+1")
    again = [
        await client.post(
            "/topics/pictures/messages", content=b"y", headers=OCTETS | {"idempotency-key": "k"}
        )
        for _ in range(2)
    ]

    assert later.json()["deliver_at"] is not None
    assert [answer.status_code for answer in again] == [201, 201]
    assert again[0].json() == again[1].json()
    assert "idempotent-replayed" in again[1].headers


@pytest.mark.parametrize(
    ("described", "pointer"),
    [
        ({"colour": "red"}, "/query/colour"),
        ({"tag": "a|b"}, "/query/tag"),
        ({"tag": ["a", "b"]}, "/query/tag"),
        ({"keys": ["fine", "a b"]}, "/query/keys/1"),
        ({"properties": "red"}, "/query/properties"),
        ({"properties": ["a=1", "a=2"]}, "/query/properties"),
        ({"properties": "TAGS=red"}, "/query/properties/TAGS"),
        ({"flag": "1.0"}, "/query/flag"),
        ({"flag": "--1"}, "/query/flag"),
        ({"flag": 2**31}, "/query/flag"),
        ({"delay_seconds": "soon"}, "/query/delay_seconds"),
        ({"delay_seconds": "inf"}, "/query/delay_seconds"),
        ({"delay_level": 19}, "/query/delay_level"),
        ({"deliver_at": "170000"}, "/query/deliver_at"),
        ({"deliver_at": "2026-11-24T08:00:00"}, "/query/deliver_at"),
        ({"queue_id": -1}, "/query/queue_id"),
        ({"message_id": "a b"}, "/query/message_id"),
        ({"message_id": ".."}, "/query/message_id"),
        ({"message_id": "a\0"}, "/query/message_id"),
        ({"tag": "a\0"}, "/query/tag"),
        ({"keys": ["a", "b\0"]}, "/query/keys/1"),
        ({"sharding_key": "\0a"}, "/query/sharding_key"),
        ({"properties": ["a=1", "b=\0"]}, "/query/properties/b"),
    ],
)
async def test_what_is_not_allowed_is_pointed_at(
    client: httpx.AsyncClient, described: dict[str, Any], pointer: str
) -> None:
    answer = await send(client, b"x", **described)

    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


async def test_a_body_that_is_empty_or_too_large_is_refused(client: httpx.AsyncClient) -> None:
    empty = await send(client, b"")
    large = await send(client, bytes(BODY_SIZE_MAX + 1))
    largest = await send(client, bytes(BODY_SIZE_MAX))

    assert (empty.status_code, empty.json()["errors"][0]["pointer"]) == (422, "/body")
    assert (large.status_code, large.json()["code"]) == (413, "too-large")
    assert largest.status_code == 201


async def test_beside_json_the_query_describes_nothing(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/topics/pictures/messages", params={"tag": "png"}, json={"body": {"text": "x"}}
    )

    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["pointer"] == "/query/tag"
    assert "in JSON it is in the body" in error["detail"]


async def test_another_media_type_is_told_both(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/topics/pictures/messages", content=b"x", headers={"content-type": "image/png"}
    )

    assert answer.status_code == 415
    assert "application/json or application/octet-stream" in answer.json()["detail"]


async def test_a_limit_is_told_in_digits(client: httpx.AsyncClient) -> None:
    refused = await send(client, b"x", delay_seconds=3_456_001)

    expected = "/query/delay_seconds: expected a number from 0 to 3456000, found '3456001'"
    assert refused.json()["detail"] == expected
