"""Sends that are refused: the problem points at the fault, and nothing is stored."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from eruca.contract.hashing import queue_of_hash, string_hash
from eruca.contract.limits import BATCH_COUNT_MAX, BODY_SIZE_MAX, JSON_BODY_SIZE_MAX
from eruca_broker.core.state.events import TopicPut
from eruca_chassis.app import ServiceApp
from support.brokers import JSON, RECORDS, batch, broker_of, client_of, open_broker, record

pytestmark = pytest.mark.anyio


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
