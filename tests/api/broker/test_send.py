"""Sends: messages are stored where the receipt says, and come back as they were sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from eruca.contract.hashing import queue_of_hash, string_hash
from eruca.contract.limits import BODY_SIZE_MAX
from eruca_chassis.app import ServiceApp
from support.brokers import JSON, RECORDS, batch, broker_of, client_of, open_broker, record
from support.delivery_clients import DeliveryClient
from support.pulled_messages import pulled

pytestmark = pytest.mark.anyio


async def test_a_message_is_pulled_from_where_send_said_it_is(client: httpx.AsyncClient) -> None:
    sent = await client.post(
        "/topics/orders/messages",
        json={
            "body": {"text": "order 17 — größer"},
            "tag": "paid",
            "keys": ["17", "c-4"],
            "properties": {"colour": "red"},
            "sharding_key": "c-4",
            "flag": -7,
        },
    )
    assert sent.status_code == 201
    place = sent.json()

    message = await pulled(client, place)

    assert message["body"] == {"text": "order 17 — größer"}
    assert message["message_id"] == place["message_id"]
    assert message["offset_message_id"] == place["offset_message_id"]
    assert message["stored_at"] == place["stored_at"]
    assert message["log_offset"] == place["log_offset"]
    assert (message["tag"], message["keys"]) == ("paid", ["17", "c-4"])
    assert (message["properties"], message["flag"]) == ({"colour": "red"}, -7)
    assert message["sharding_key"] == "c-4"
    assert message["born_host"] == "10.1.2.3:4567"


@pytest.mark.parametrize(
    ("body", "comes_back"),
    [
        ({"text": "plain"}, {"text": "plain"}),
        ({"json": {"a": [1, 2.50]}}, {"json": {"a": [1, 2.5]}}),
        ({"json": None}, {"json": None}),
        ({"json": "17"}, {"json": "17"}),
        ({"json": 2**80}, {"json": 2**80}),
        ({"text": '{"a": 1}'}, {"text": '{"a": 1}'}),
        ({"base64": "cGxhaW4="}, {"text": "plain"}),
        ({"base64": "/wA="}, {"base64": "/wA="}),
    ],
)
async def test_a_body_comes_back_as_what_it_was_sent_or_as_text_where_it_is_utf_8(
    client: httpx.AsyncClient, body: dict[str, Any], comes_back: dict[str, Any]
) -> None:
    sent = await client.post("/topics/orders/messages", json={"body": body})
    place = sent.json()

    found = await pulled(client, place)
    feed = await client.get(
        f"/log/records/{place['log_offset']}", headers={"accept": "application/json"}
    )

    assert found["body"] == feed.json()["message"]["body"] == comes_back
    assert found["properties"] == {}


async def test_a_json_body_is_stored_without_white_space_and_otherwise_as_it_came(
    client: httpx.AsyncClient,
) -> None:
    value = '{ "b" : [1.50, 1e2 ,\n\t-0],  "a":"\\u0041 x y" }'
    sent = await client.post(
        "/topics/orders/messages", content=f'{{"body": {{"json": {value}}}}}', headers=JSON
    )

    octets = await client.get(
        f"/log/records/{sent.json()['log_offset']}", headers={"accept": "application/octet-stream"}
    )

    assert octets.text == '{"b":[1.50,1e2,-0],"a":"\\u0041 x y"}'


async def test_a_json_body_comes_back_so_by_every_way(client: httpx.AsyncClient) -> None:
    consumer = DeliveryClient(client)
    await consumer.create()
    value = {"flight": 1545, "legs": [None, True, 1.5]}
    path = "/topics/orders/messages?queue_id=0"
    await client.post(path, json={"messages": [{"body": {"json": value}, "keys": ["k"]}]})

    [delivered] = await consumer.receive()
    pulled_many = await client.post(
        "/pull", json={"queues": [{"topic": "orders", "queue_id": 0, "offset": 0}]}
    )
    by_key = await client.get("/topics/orders/messages", params={"key": "k"})

    bodies = [
        delivered["message"]["body"],
        pulled_many.json()["queues"][0]["answer"]["messages"][0]["body"],
        by_key.json()["messages"][0]["body"],
    ]
    assert bodies == [{"json": value}] * 3


async def test_a_body_that_says_it_is_json_and_is_not_comes_back_as_text(
    client: httpx.AsyncClient,
) -> None:
    properties = "ERUCA_BODY_FORMAT\x01json\x02"  # as a producer of records may say by itself
    content = batch([record("orders", b"{", queue_id=0, properties=properties)])
    sent = await client.post("/topics/orders/queues/0/records", content=content, headers=RECORDS)
    assert sent.status_code == httpx.codes.CREATED, sent.text

    found = await pulled(client, {"topic": "orders", **sent.json()})

    assert found["body"] == {"text": "{"}


async def test_a_batch_lies_in_one_queue_at_consecutive_offsets(client: httpx.AsyncClient) -> None:
    sent = await client.post(
        "/topics/orders/messages",
        json={"messages": [{"body": {"text": str(n)}} for n in range(40)]},
    )

    places = sent.json()["messages"]
    assert sent.status_code == 201
    assert {place["queue_id"] for place in places} == {places[0]["queue_id"]}
    assert [place["queue_offset"] for place in places] == list(range(40))
    assert len({place["message_id"] for place in places}) == 40
    for number in (0, 17, 39):
        assert (await pulled(client, places[number]))["body"] == {"text": str(number)}


async def test_a_sharding_key_always_leads_to_its_queue(client: httpx.AsyncClient) -> None:
    for key in ("a", "N14228", "Zürich", "polygenelubricants"):
        sent = await client.post(
            "/topics/orders/messages", json={"body": {"text": "x"}, "sharding_key": key}
        )
        assert sent.json()["queue_id"] == queue_of_hash(string_hash(key), 4)


async def test_without_a_key_the_queues_take_turns(client: httpx.AsyncClient) -> None:
    queues = [
        (await client.post("/topics/orders/messages", json={"body": {"text": "x"}})).json()
        for _ in range(8)
    ]

    assert [place["queue_id"] for place in queues] == [0, 1, 2, 3] * 2


async def test_queue_id_says_which_queue(client: httpx.AsyncClient) -> None:
    sent = await client.post(
        "/topics/orders/messages", params={"queue_id": 2}, json={"body": {"text": "x"}}
    )

    assert sent.json()["queue_id"] == 2


async def test_an_id_of_the_clients_own_is_kept(client: httpx.AsyncClient) -> None:
    sent = await client.post(
        "/topics/orders/messages", json={"body": {"text": "x"}, "message_id": "mine-1"}
    )

    assert sent.json()["message_id"] == "mine-1"
    found = await client.get("/topics/orders/messages", params={"key": "mine-1"})
    assert [m["message_id"] for m in found.json()["messages"]] == ["mine-1"]


async def test_a_queue_that_is_named_wins_over_the_sharding_keys(client: httpx.AsyncClient) -> None:
    selected = queue_of_hash(string_hash("a"), 4)
    apart = [{"body": {"text": "x"}, "sharding_key": key} for key in ("a", "b")]

    sent = await client.post(
        "/topics/orders/messages",
        params={"queue_id": (selected + 1) % 4},
        json={"messages": apart},
    )

    assert sent.status_code == 201
    assert {receipt["queue_id"] for receipt in sent.json()["messages"]} == {(selected + 1) % 4}


async def test_the_largest_body_fits(client: httpx.AsyncClient) -> None:
    sent = await client.post(
        "/topics/orders/messages", json={"body": {"text": "x" * BODY_SIZE_MAX}}
    )

    assert sent.status_code == 201
    assert (await pulled(client, sent.json()))["body"] == {"text": "x" * BODY_SIZE_MAX}


async def test_a_percent_sign_in_a_topics_name_is_decoded_from_the_path(
    client: httpx.AsyncClient,
) -> None:
    sent = await client.post("/topics/50%25/messages", json={"body": {"text": "x"}})

    assert sent.json()["topic"] == "50%"
    assert (await pulled(client, {**sent.json(), "topic": "50%25"}))["topic"] == "50%"


async def test_many_at_once_create_a_topic_once(app: ServiceApp, client: httpx.AsyncClient) -> None:
    sent = await asyncio.gather(
        *(client.post("/topics/orders/messages", json={"body": {"text": "x"}}) for _ in range(20))
    )

    assert {answer.status_code for answer in sent} == {201}
    read = broker_of(app).store.log.read(0, 1024**2)
    assert bytes(read.records).count(b'"event":"topic_put"') == 1


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"read_queue_count": 1, "write_queue_count": 1}, 404),
        ({"permission": "r"}, 403),
        ({"read_queue_count": 4, "write_queue_count": 4}, 201),
    ],
)
async def test_who_creates_a_topic_while_a_message_would_has_it_as_he_wants_it(
    client: httpx.AsyncClient, settings: dict[str, Any], status: int
) -> None:
    created, sent = await asyncio.gather(
        client.put("/topics/orders", json=settings),
        client.post("/topics/orders/messages?queue_id=3", json={"body": {"text": "order"}}),
    )

    assert (created.status_code, sent.status_code) == (201, status)
    if status == 201:
        assert (await pulled(client, sent.json()))["body"] == {"text": "order"}


async def test_the_receipt_says_how_durable_it_is(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for mode, durability in (("sync", "flushed"), ("async", "written")):
        directory = tmp_path_factory.mktemp(mode)
        async with open_broker(directory, flush_mode=mode) as app, client_of(app) as client:
            sent = await client.post("/topics/orders/messages", json={"body": {"text": "x"}})
            assert sent.json()["durability"] == durability


async def test_a_body_in_pieces_is_put_together(client: httpx.AsyncClient) -> None:
    whole = json.dumps({"body": {"text": "pieces" * 1000}}).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(whole), 1000):
            yield whole[start : start + 1000]

    sent = await client.post("/topics/orders/messages", content=pieces(), headers=JSON)

    assert sent.status_code == 201
