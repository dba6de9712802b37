"""Sending as JSON, as a client sees it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from eruca.contract.hashing import queue_of_hash, string_hash
from eruca.contract.limits import BATCH_COUNT_MAX, BODY_SIZE_MAX, JSON_BODY_SIZE_MAX
from eruca_broker.core.state.events import TopicPut
from eruca_chassis.app import ServiceApp
from support.brokers import (
    JSON,
    RECORDS,
    batch,
    broker_of,
    client_of,
    open_broker,
    record,
)
from support.delivery_clients import DeliveryClient

pytestmark = pytest.mark.anyio
PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


async def pulled(client: httpx.AsyncClient, place: dict[str, Any]) -> dict[str, Any]:
    answer = await client.get(
        f"/topics/{place['topic']}/queues/{place['queue_id']}/messages",
        params={"offset": place["queue_offset"], "count_max": 1},
    )
    [message] = answer.json()["messages"]
    found: dict[str, Any] = message
    return found


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


@pytest.mark.parametrize("kind", ["one", "batch", "octets"])
async def test_the_trace_of_a_send_goes_with_its_messages(
    client: httpx.AsyncClient, kind: str
) -> None:
    trace = {"traceparent": PARENT, "tracestate": "vendor=1"}
    path = "/topics/orders/messages"
    message = {"body": {"text": "order 17"}, "properties": {"colour": "red"}}
    if kind == "octets":
        octets = trace | {"content-type": "application/octet-stream"}
        sent = await client.post(
            path, content=b"order 17", headers=octets, params={"properties": "colour=red"}
        )
    else:
        body = message if kind == "one" else {"messages": [message]}
        sent = await client.post(path, json=body, headers=trace)
    place = sent.json()["messages"][0] if kind == "batch" else sent.json()

    assert (await pulled(client, place))["properties"] == {"colour": "red"} | trace


@pytest.mark.parametrize(
    ("headers", "said", "properties"),
    [
        ({"traceparent": PARENT.upper()}, {}, {}),
        ({"traceparent": PARENT + "-more"}, {}, {}),
        ({"traceparent": PARENT.replace("a", "0")}, {}, {}),
        ({"traceparent": "01" + PARENT[2:] + "-" + "x" * 100}, {}, {}),
        ({"traceparent": "01" + PARENT[2:] + "-x"}, {}, {"traceparent": "01" + PARENT[2:] + "-x"}),
        ({"tracestate": "vendor=1"}, {}, {}),
        ({"traceparent": PARENT, "tracestate": "x" * 513}, {}, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": "x\x01y"}, {}, {"traceparent": PARENT}),
        ({"traceparent": PARENT}, {"traceparent": "its own"}, {"traceparent": "its own"}),
    ],
)
async def test_a_trace_that_is_ill_formed_or_not_the_messages_is_left_out(
    client: httpx.AsyncClient,
    headers: dict[str, str],
    said: dict[str, str],
    properties: dict[str, str],
) -> None:
    sent = await client.post(
        "/topics/orders/messages",
        json={"body": {"text": "order 17"}, "properties": said},
        headers=headers,
    )

    assert (await pulled(client, sent.json()))["properties"] == properties


async def test_a_trace_makes_no_message_too_large(client: httpx.AsyncClient) -> None:
    sent = await client.post(
        "/topics/orders/messages",
        json={"body": {"text": "order 17"}, "properties": {"long": "x" * 32_600}},
        headers={"traceparent": PARENT, "tracestate": "x" * 512},
    )

    assert sent.status_code == httpx.codes.CREATED


async def test_the_same_send_in_another_trace_is_the_same(client: httpx.AsyncClient) -> None:
    path, message = "/topics/orders/messages", {"body": {"text": "order 17"}}
    first, again = [
        await client.post(
            path,
            json=message,
            headers={"idempotency-key": "order-17", "traceparent": PARENT.replace("a", digit)},
        )
        for digit in "ac"
    ]

    assert again.headers["idempotent-replayed"] == "true"
    assert again.json() == first.json()


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


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({"body": {}}, "/body/body"),
        ({"body": {"text": "x", "json": 1}}, "/body/body"),
        ({"body": {"text": ""}}, "/body/body"),
        ({"body": {"text": 5}}, "/body/body/text"),
        ({"body": {"base64": "a"}}, "/body/body/base64"),
        ({"body": {"base64": "YQ==\n"}}, "/body/body/base64"),
        ({"body": {"base64": "ü"}}, "/body/body/base64"),
        ({"body": {"text": "x"}, "keys": ["a b"]}, "/body/keys/0"),
        ({"body": {"text": "x"}, "keys": ["a", ""]}, "/body/keys/1"),
        ({"body": {"text": "x"}, "keys": ["a\n"]}, "/body/keys/0"),
        ({"body": {"text": "x"}, "keys": ["a\u2003b"]}, "/body/keys/0"),
        ({"body": {"text": "x"}, "tag": ""}, "/body/tag"),
        ({"body": {"text": "x"}, "tag": "a || b"}, "/body/tag"),
        ({"body": {"text": "x"}, "tag": " a"}, "/body/tag"),
        ({"body": {"text": "x"}, "tag": "a\u0001"}, "/body/tag"),
        ({"body": {"text": "x"}, "keys": ["a\u0002"]}, "/body/keys/0"),
        ({"body": {"text": "x"}, "sharding_key": "\u0001"}, "/body/sharding_key"),
        ({"body": {"text": "x"}, "sharding_key": " "}, "/body/sharding_key"),
        ({"body": {"text": "x"}, "message_id": "a\u0002"}, "/body/message_id"),
        ({"body": {"text": "x"}, "message_id": "a b"}, "/body/message_id"),
        ({"body": {"text": "x"}, "properties": {"a\u0001": "b"}}, "/body/properties/a\u0001"),
        ({"body": {"text": "x"}, "properties": {"a": "b\u0002"}}, "/body/properties/a"),
        ({"body": {"text": "x"}, "properties": {"a": " "}}, "/body/properties/a"),
        ({"body": {"text": "x"}, "properties": {"": "b"}}, "/body/properties/"),
        ({"body": {"text": "x"}, "properties": {"TAGS": "b"}}, "/body/properties/TAGS"),
        ({"body": {"text": "x"}, "properties": {"UNIQ_KEY": "b"}}, "/body/properties/UNIQ_KEY"),
        ({"body": {"text": "x"}, "properties": {"DELAY": "3"}}, "/body/properties/DELAY"),
        ({"body": {"text": "x"}, "properties": {"a/~": ""}}, "/body/properties/a~1~0"),
        ({"body": {"text": "x"}, "properties": {"a": 1}}, "/body/properties"),
        ({"body": {"text": "x"}, "tag": "a\u0000"}, "/body/tag"),
        ({"body": {"text": "x"}, "keys": ["a", "\u0000"]}, "/body/keys/1"),
        ({"body": {"text": "x"}, "sharding_key": "a\u0000"}, "/body/sharding_key"),
        ({"body": {"text": "x"}, "message_id": "a\u0000"}, "/body/message_id"),
        ({"body": {"text": "x"}, "message_id": ".."}, "/body/message_id"),
        ({"body": {"text": "x"}, "properties": {"a": "\u0000"}}, "/body/properties/a"),
        ({"body": {"text": "x"}, "properties": {"\u0000": "a"}}, "/body/properties/\u0000"),
        ({"body": {"text": "x"}, "flag": 2**31}, "/body/flag"),
        ({"body": {"text": "x"}, "colour": "red"}, "/body/colour"),
        ({"messages": []}, "/body/messages"),
        ({"messages": [{"body": {"text": "x"}}, {"body": {}}]}, "/body/messages/1/body"),
        ({"messages": [{"body": {"text": "x"}}, {}]}, "/body/messages/1/body"),
        ({}, "/body/body"),
        ([], "/body"),
    ],
)
async def test_a_message_that_is_not_allowed_is_pointed_at_and_changes_nothing(
    app: ServiceApp, client: httpx.AsyncClient, message: object, pointer: str
) -> None:
    before = broker_of(app).store.log_max_offset

    refused = await client.post("/topics/orders/messages", json=message)

    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    problem = refused.json()
    assert problem["code"] == "validation-failed"
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert broker_of(app).store.log_max_offset == before  # not even the topic was created


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nonsense", b'{"body":{"text":"\xff"}}', b'{"body":{"text":"x"}} x', b"\xff",
     b'{"body":{"json":' + b"[" * 100_000, b'{"body":{"text":"\\ud800"}}'],
)  # fmt: skip
async def test_what_is_not_json_is_a_malformed_body(client: httpx.AsyncClient, body: bytes) -> None:
    refused = await client.post("/topics/orders/messages", content=body, headers=JSON)

    assert (refused.status_code, refused.json()["code"]) == (400, "malformed-body")


async def test_json_that_is_not_utf_8_inside_a_json_body_is_refused(
    client: httpx.AsyncClient,
) -> None:
    refused = await client.post(
        "/topics/orders/messages", content=b'{"body":{"json":"\xff"}}', headers=JSON
    )

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/body/body/json"


async def test_sharding_keys_of_a_batch_must_agree(client: httpx.AsyncClient) -> None:
    apart = [{"body": {"text": "x"}, "sharding_key": key} for key in ("a", "b")]
    assert queue_of_hash(string_hash("a"), 4) != queue_of_hash(string_hash("b"), 4)

    refused = await client.post("/topics/orders/messages", json={"messages": apart})
    alike = await client.post("/topics/orders/messages", json={"messages": apart[:1] * 3})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/body/messages/1/sharding_key"
    assert alike.status_code == 201


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


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"body": {"text": "x" * (BODY_SIZE_MAX + 1)}}, "too-large"),
        ({"messages": [{"body": {"text": "x" * (BODY_SIZE_MAX // 2 + 1)}}] * 2}, "too-large"),
        ({"body": {"text": "x"}, "properties": {"p": "x" * 32_768}}, "too-large"),
        ({"body": {"text": "x" * JSON_BODY_SIZE_MAX}}, "too-large"),
    ],
    ids=["body", "bodies of a batch", "properties", "request"],
)
async def test_what_is_too_large_is_413(
    client: httpx.AsyncClient, message: dict[str, Any], code: str
) -> None:
    refused = await client.post("/topics/orders/messages", json=message)

    assert (refused.status_code, refused.json()["code"]) == (413, code)


async def test_the_largest_body_fits(client: httpx.AsyncClient) -> None:
    sent = await client.post(
        "/topics/orders/messages", json={"body": {"text": "x" * BODY_SIZE_MAX}}
    )

    assert sent.status_code == 201
    assert (await pulled(client, sent.json()))["body"] == {"text": "x" * BODY_SIZE_MAX}


async def test_more_messages_than_a_batch_holds_are_refused(client: httpx.AsyncClient) -> None:
    messages = [{"body": {"text": "x"}}] * (BATCH_COUNT_MAX + 1)

    refused = await client.post("/topics/orders/messages", json={"messages": messages})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/body/messages"


@pytest.mark.parametrize(
    ("topic", "status", "code"),
    [
        ("ERUCA_SYS_EVENTS", 403, "system-topic-protected"),
        ("SCHEDULE_TOPIC_XXXX", 403, "system-topic-protected"),
        ("rmq_sys_wheel_timer", 403, "system-topic-protected"),
        ("no.dots", 422, "validation-failed"),
        ("ü", 422, "validation-failed"),
        ("x" * 128, 422, "validation-failed"),
    ],
)
async def test_topics_nobody_may_send_to(
    client: httpx.AsyncClient, topic: str, status: int, code: str
) -> None:
    refused = await client.post(f"/topics/{topic}/messages", json={"body": {"text": "x"}})

    assert (refused.status_code, refused.json()["code"]) == (status, code)


@pytest.mark.parametrize("queue_id", ["4", "2147483647"])
async def test_a_queue_the_topic_does_not_have_is_404(
    client: httpx.AsyncClient, queue_id: str
) -> None:
    refused = await client.post(
        "/topics/orders/messages", params={"queue_id": queue_id}, json={"body": {"text": "x"}}
    )

    assert (refused.status_code, refused.json()["code"]) == (404, "queue-not-found")
    assert (await client.get("/topics/orders")).status_code == 404


@pytest.mark.parametrize(
    "query", ["queue_id=-1", "queue_id=x", "queue_id=", "queue_id=1&queue_id=2", "queue=1"]
)
async def test_a_query_that_is_not_understood_is_422(client: httpx.AsyncClient, query: str) -> None:
    refused = await client.post(f"/topics/orders/messages?{query}", json={"body": {"text": "x"}})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"].startswith("/query/queue")


async def test_a_percent_sign_in_a_topics_name_is_decoded_from_the_path(
    client: httpx.AsyncClient,
) -> None:
    sent = await client.post("/topics/50%25/messages", json={"body": {"text": "x"}})

    assert sent.json()["topic"] == "50%"
    assert (await pulled(client, {**sent.json(), "topic": "50%25"}))["topic"] == "50%"


BODY = {"body": {"text": "x"}}
WAYS: dict[str, dict[str, Any]] = {
    "JSON": {"json": BODY},
    "a batch": {"json": {"messages": [BODY, BODY]}},
    "octets": {"content": b"x", "headers": {"content-type": "application/octet-stream"}},
    "delayed": {"json": BODY | {"delay_seconds": 9}},
    "idempotent": {"json": BODY, "headers": {"Idempotency-Key": "order-17"}},
}


@pytest.mark.parametrize("is_there", [True, False], ids=["of a group", "of no group"])
@pytest.mark.parametrize("prefix", ["RETRY", "DLQ"])
async def test_nobody_sends_to_what_holds_a_groups_retries_and_dead_letters(
    client: httpx.AsyncClient, app: ServiceApp, prefix: str, *, is_there: bool
) -> None:
    """A letter sent there would be redriven to itself without end."""
    topic = f"%{prefix}%billing"
    if is_there:
        await broker_of(app).store.change(TopicPut(topic, 1, 1, "rw"))
    end = broker_of(app).store.log_max_offset
    path = f"/topics/{topic.replace('%', '%25')}"

    answers = [await client.post(f"{path}/messages", **way) for way in WAYS.values()]
    answers.append(
        await client.post(
            f"{path}/queues/0/records", content=batch([record(topic)]), headers=RECORDS
        )
    )
    half = {"topic": topic, "producer_group": "shop", "message": BODY}
    answers.append(await client.post("/transactions", json=half))
    answers.append(await client.put(path, json={"permission": "none"}))

    told = {(answer.status_code, answer.json()["code"]) for answer in answers}
    assert told == {(403, "derived-topic-protected")}, [answer.text for answer in answers]
    assert broker_of(app).store.log_max_offset == end


@pytest.mark.parametrize("permission", ["r", "none"])
async def test_a_topic_that_may_not_be_written_to_refuses(
    client: httpx.AsyncClient, permission: str
) -> None:
    await client.put("/topics/orders", json={"permission": permission})

    refused = await client.post("/topics/orders/messages", json={"body": {"text": "x"}})

    assert (refused.status_code, refused.json()["code"]) == (403, "permission-denied")


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"content-type": "text/plain"}, 415, "unsupported-media-type"),
        ({"content-type": "application/vnd.eruca.records"}, 415, "unsupported-media-type"),
        ({**JSON, "content-encoding": "gzip"}, 415, "unsupported-media-type"),
        ({**JSON, "accept": "text/html"}, 406, "not-acceptable"),
        ({**JSON, "accept": "application/json;q=0"}, 406, "not-acceptable"),
        ({**JSON, "accept": "text/html, */*;q=0.1"}, 201, None),
        ({"content-type": "application/json; charset=utf-8"}, 201, None),
    ],
)
async def test_media_types_are_negotiated(
    client: httpx.AsyncClient, headers: dict[str, str], status: int, code: str | None
) -> None:
    answer = await client.post(
        "/topics/orders/messages", content=b'{"body":{"text":"x"}}', headers=headers
    )

    assert answer.status_code == status
    assert answer.json().get("code") == code


async def test_a_topic_is_not_created_by_sending_where_the_broker_is_told_not_to(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("store")
    async with open_broker(directory, auto_create_topics=False) as app, client_of(app) as client:
        refused = await client.post("/topics/orders/messages", json={"body": {"text": "x"}})

        assert (refused.status_code, refused.json()["code"]) == (404, "topic-not-found")
        assert (await client.put("/topics/orders", json={})).status_code == 201
        sent = await client.post("/topics/orders/messages", json={"body": {"text": "x"}})
        assert sent.status_code == 201


async def test_many_at_once_create_a_topic_once(app: ServiceApp, client: httpx.AsyncClient) -> None:
    sent = await asyncio.gather(
        *(client.post("/topics/orders/messages", json={"body": {"text": "x"}}) for _ in range(20))
    )

    assert {answer.status_code for answer in sent} == {201}
    read = broker_of(app).store.log_read(0, 1024**2)
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


TWICE = (
    '{"body": {"text": "x"}, "tag": "a", "tag": "b"}',
    '{"body": {"text": "x", "text": "y"}}',
    '{"body": {"text": "x"}, "properties": {"k": "v", "k": "w"}}',
    '{"body": {"json": {"k": {"a": 1, "a": 2}}}}',
    '{"body": {"j\\u0073on": [{"a": 1, "a": 2}]}}',
)


@pytest.mark.parametrize("message", TWICE)
async def test_a_member_given_twice_is_refused_and_nothing_is_stored(
    client: httpx.AsyncClient, app: ServiceApp, message: str
) -> None:
    end = broker_of(app).store.log_max_offset
    half = f'{{"topic": "orders", "producer_group": "g", "message": {message}}}'
    for path, body in (
        ("/topics/orders/messages", message),
        ("/topics/orders/messages", f'{{"messages": [{{"body": {{"text": "1"}}}}, {message}]}}'),
        ("/transactions", half),
        ("/pull", '{"queues": [{"topic": "orders", "queue_id": 0, "offset": 0, "offset": 1}]}'),
        ("/groups/g/deliveries", '{"topic": "orders", "count_max": 1, "count_max": 2}'),
    ):
        refused = await client.post(path, content=body.encode(), headers=JSON)

        assert (refused.status_code, refused.json()["code"]) == (400, "malformed-body"), path
        assert "twice" in refused.json()["detail"]
        assert refused.json()["fix"]
    group = await client.put("/groups/g", content=b'{"retry_max": 1, "retry_max": 2}', headers=JSON)
    assert (group.status_code, group.json()["code"]) == (400, "malformed-body")
    assert broker_of(app).store.log_max_offset == end
