"""Idempotency keys: the same send is stored once, and anything else under its key is refused."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca.contract.errors import DiskFullError
from eruca.contract.limits import IDEMPOTENCY_KEY_SIZE_MAX
from eruca_broker.processors.idempotent_send import LOOKED_AT_MAX
from eruca_broker.store.log.commit_log import CommitLog
from eruca_chassis.app import ServiceApp
from support.brokers import RECORDS, batch, broker_of, client_of, open_broker, record
from support.clocks import ManualClock
from support.idempotent_sends import PAID, is_replay, send, stored
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_the_same_again_is_answered_with_the_first_receipt(client: httpx.AsyncClient) -> None:
    first = await send(client, PAID)
    reordered = PAID | {"properties": {"size": "9", "colour": "red"}}

    assert is_replay(first, await send(client, PAID))
    assert is_replay(first, await send(client, reordered, "order-17"))
    assert is_replay(first, await send(client, PAID | {"message_id": "order-17"}))
    assert first.json()["message_id"] == "order-17"
    assert await stored(client) == 1


async def test_the_same_is_the_same_in_another_trace(client: httpx.AsyncClient) -> None:
    def in_trace(digit: str) -> dict[str, Any]:
        context = {"traceparent": f"00-{digit * 32}-{digit * 16}-01", "tracestate": f"v={digit}"}
        return PAID | {"properties": {"colour": "red", "size": "9"} | context}

    first = await send(client, in_trace("1"))

    assert is_replay(first, await send(client, in_trace("2")))
    assert is_replay(first, await send(client, PAID))
    assert await stored(client) == 1


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"body": {"text": "order 17 is late"}}, "its body"),
        ({"tag": "late"}, "its tag"),
        ({"keys": ["17", "18"]}, "its keys"),
        ({"sharding_key": "c-5"}, "its sharding_key"),
        ({"properties": {"colour": "red"}}, "its property 'size'"),
        ({"flag": 4}, "its flag"),
        ({"delay_seconds": 60}, "its delay"),
    ],
)
async def test_anything_else_under_the_key_is_refused_and_says_where_the_first_is(
    client: httpx.AsyncClient, change: dict[str, Any], what: str
) -> None:
    place = (await send(client, PAID)).json()

    refused = await send(client, PAID | change)

    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "idempotency-key-reused")
    assert what in problem["detail"]
    assert f"queue {place['queue_id']} at offset {place['queue_offset']}" in problem["detail"]
    assert "another Idempotency-Key" in problem["fix"]
    assert not problem["retryable"]
    assert await stored(client) == 1


async def test_a_queue_that_is_asked_for_must_be_the_first_ones(client: httpx.AsyncClient) -> None:
    message = {"body": {"text": "x"}}
    first = await send(client, message, queue_id=2)

    assert is_replay(first, await send(client, message, queue_id=2))
    assert is_replay(first, await send(client, message))
    refused = await send(client, message, queue_id=1)
    assert "its queue" in refused.json()["detail"]


async def test_another_key_or_topic_or_none_is_another_send(client: httpx.AsyncClient) -> None:
    await send(client, PAID)
    await send(client, PAID, '"order-17b"')
    await client.post("/topics/orders/messages", json=PAID)
    elsewhere = await client.post(
        "/topics/bills/messages", json=PAID, headers={"idempotency-key": '"order-17"'}
    )

    assert "idempotent-replayed" not in elsewhere.headers
    assert (await stored(client), await stored(client, "bills")) == (3, 1)


async def test_a_message_that_has_the_key_among_its_keys_was_not_sent_under_it(
    client: httpx.AsyncClient,
) -> None:
    await client.post("/topics/orders/messages", json=PAID | {"keys": ["order-17"]})

    assert "idempotent-replayed" not in (await send(client, PAID)).headers
    assert await stored(client) == 2


async def test_a_key_that_is_every_messages_key_is_refused(client: httpx.AsyncClient) -> None:
    crowd = {"messages": [{"body": {"text": "x"}, "keys": ["order-17"]}] * LOOKED_AT_MAX}
    await client.post("/topics/orders/messages", json=crowd)

    refused = await send(client, PAID)

    assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")
    assert "not a message's key" in refused.json()["fix"]


async def test_a_batch_is_known_again_as_a_whole(client: httpx.AsyncClient) -> None:
    messages = [PAID | {"body": {"text": str(number)}} for number in range(40)]
    first = await send(client, {"messages": messages})

    ids = [receipt["message_id"] for receipt in first.json()["messages"]]
    assert ids == [f"order-17-{number}" for number in range(40)]
    assert is_replay(first, await send(client, {"messages": messages}))
    for others in (messages[:-1], [*messages, PAID], messages[::-1]):
        refused = await send(client, {"messages": others})
        assert refused.json()["code"] == "idempotency-key-reused", refused.text
    assert await stored(client) == 40


async def test_a_batch_may_bring_its_ids_of_which_the_first_is_the_key(
    client: httpx.AsyncClient,
) -> None:
    messages = [{"body": {"text": unique_id}, "message_id": unique_id} for unique_id in "abc"]
    first = await send(client, {"messages": messages}, "a")

    assert is_replay(first, await send(client, {"messages": messages}, "a"))
    for wrong in (messages[1:], [*messages, {"body": {"text": "no id"}}]):
        refused = await send(client, {"messages": wrong}, "a")
        assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")


async def test_an_id_beside_the_key_is_refused_with_both_named(client: httpx.AsyncClient) -> None:
    refused = await send(client, PAID | {"message_id": "mine"})

    assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")
    assert "'mine'" in refused.json()["detail"]
    assert "'order-17'" in refused.json()["detail"]


@pytest.mark.parametrize(
    "key",
    [
        "",
        '""',
        "two words",
        '"two words"',
        '"a", "b"',
        "a,b",
        '"unfinished',
        'in"side',
        '"a";q=1',
        "x" * (IDEMPOTENCY_KEY_SIZE_MAX + 1),
        "größer".encode(),
        b"\x7f",
    ],
)
async def test_what_is_no_key_is_refused_before_anything_is_stored(
    client: httpx.AsyncClient, key: str | bytes
) -> None:
    records_type = (b"content-type", RECORDS["content-type"].encode())
    for path, more in (("messages", []), ("queues/1/records", [records_type])):
        refused = await client.post(
            f"/topics/orders/{path}",
            content=b'{"body": {"text": "x"}}',
            headers=[*more, (b"idempotency-key", key if isinstance(key, bytes) else key.encode())],
        )
        assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")
        assert refused.json()["errors"][0]["pointer"] == "/header/idempotency-key"


@pytest.mark.parametrize("key", [r'"say\"a\\b\""', "a" * IDEMPOTENCY_KEY_SIZE_MAX, "u:r/i=@"])
async def test_what_is_visible_can_be_a_key(client: httpx.AsyncClient, key: str) -> None:
    first = await send(client, {"messages": [PAID]}, key)

    assert is_replay(first, await send(client, {"messages": [PAID]}, key))


async def test_two_at_the_same_moment_are_stored_once(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "synced", flush_mode="sync") as app, client_of(app) as client:
        answers = await asyncio.gather(*(send(client, PAID) for _ in range(10)))

        assert {answer.status_code for answer in answers} == {201}
        assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
        assert len({answer.text for answer in answers}) == 1
        assert answers[0].json()["durability"] == "flushed"
        assert await stored(client) == 1


async def test_two_at_the_same_moment_of_which_neither_can_be_stored(
    app: ServiceApp, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.put("/topics/orders", json={})
    with monkeypatch.context() as patched:
        patched.setattr(CommitLog, "write", _full)
        answers = await asyncio.gather(*(send(client, PAID) for _ in range(3)))
        assert {answer.json()["code"] for answer in answers} == {"disk-full"}
    await broker_of(app).store.upkeep.probe_disk()

    assert "idempotent-replayed" not in (await send(client, PAID)).headers
    assert await stored(client) == 1


def _full(log: CommitLog) -> None:
    log.take_back()
    raise OSError(errno.ENOSPC, "no space left on device")


@pytest.mark.parametrize("count", [1, 5, 100])
async def test_a_batch_of_records_is_known_by_its_first_id(
    client: httpx.AsyncClient, clock: ManualClock, count: int
) -> None:
    def body(*, more: str = "", born: int = 7) -> bytes:
        return batch(
            [
                record(
                    "orders",
                    b"m%d" % n,
                    queue_id=1,
                    born_timestamp=born,
                    properties=f"UNIQ_KEY\x01id{n}\x02TAGS\x01t\x02" + (more if n else ""),
                )
                for n in range(count)
            ]
        )

    async def post(content: bytes, key: str = '"id0"', queue_id: int = 1) -> httpx.Response:
        return await client.post(
            f"/topics/orders/queues/{queue_id}/records",
            content=content,
            headers={"idempotency-key": key, **RECORDS},
        )

    first = await post(body())
    clock.advance(1)

    assert is_replay(first, await post(body()))
    assert is_replay(first, await post(body(born=9)))  # encoded again
    assert (await post(body(), "another")).json()["code"] == "validation-failed"
    longer = batch([record("orders", b"m0", queue_id=1, properties="UNIQ_KEY\x01id0\x02")] * 101)
    assert (await post(longer)).json()["code"] == "idempotency-key-reused"
    if count > 1:
        assert (await post(body(more="x\x01y\x02"))).json()["code"] == "idempotency-key-reused"
    assert await stored(client) == count


async def test_records_in_another_queue_are_not_the_same(client: httpx.AsyncClient) -> None:
    answers = [
        await client.post(
            f"/topics/orders/queues/{queue_id}/records",
            content=batch([record("orders", queue_id=queue_id, properties="UNIQ_KEY\x01i\x02")]),
            headers={"idempotency-key": "i", **RECORDS},
        )
        for queue_id in (1, 2)
    ]

    assert [answer.status_code for answer in answers] == [201, 422]
    assert "its queue" in answers[1].json()["detail"]


async def test_a_replay_changes_nothing(app: ServiceApp, client: httpx.AsyncClient) -> None:
    await send(client, PAID)
    store = broker_of(app).store
    await until(lambda: store.visible_offset == store.log_max_offset)
    end = store.log_max_offset

    await send(client, PAID)
    await send(client, PAID | {"tag": "other"})

    assert store.log_max_offset == end


async def test_a_replay_is_answered_while_writes_are_refused(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    """It writes nothing; what was not stored is refused as ever."""
    first = await send(client, PAID)
    broker_of(app).store.refusal = DiskFullError("the disk is 91% full")

    assert is_replay(first, await send(client, PAID))
    for key in ('"order-18"', '"order-19"'):
        refused = await send(client, PAID, key)
        assert (refused.status_code, refused.json()["code"]) == (503, "disk-full")
    unkeyed = await client.post("/topics/orders/messages", json=PAID)
    assert (unkeyed.status_code, unkeyed.json()["code"]) == (503, "disk-full")

    broker_of(app).store.refusal = None
    assert (await send(client, PAID, '"order-18"')).status_code == 201
    assert await stored(client) == 2


@pytest.mark.parametrize(
    ("first", "again", "is_same"),
    [
        ('{"a": 1, "b": [true, null]}', '{ "b":[true,null], "a":1 }', True),
        ('{"a": 100}', '{"a": 1e2}', True),
        ('{"a": 1}', '{"a": 1.0}', True),
        ('{"a": 0}', '{"a": -0.0}', True),
        ('"A"', '"\\u0041"', True),
        ('"\\u00fc/"', '"ü\\/"', True),
        ("[1, 2]", "[2, 1]", False),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": null}', "{}", False),
        ("0.1", "0.10000000000000000001", False),
        ("9007199254740993", "9007199254740992", False),
        ("1e400", "1e401", False),
    ],
)
async def test_two_spellings_of_one_json_value_are_the_same(
    client: httpx.AsyncClient, first: str, again: str, is_same: bool
) -> None:
    headers = {"content-type": "application/json", "idempotency-key": "k-1"}
    path = "/topics/orders/messages"
    sent, repeated = [
        await client.post(path, content=f'{{"body": {{"json": {text}}}}}', headers=headers)
        for text in (first, again)
    ]

    assert sent.status_code == 201, sent.text
    if is_same:
        assert (repeated.status_code, repeated.json()) == (201, sent.json())
        assert repeated.headers["idempotent-replayed"] == "true"
    else:
        assert (repeated.status_code, repeated.json()["code"]) == (422, "idempotency-key-reused")
        assert "its body" in repeated.json()["detail"]


async def test_a_text_that_looks_like_json_is_no_json(client: httpx.AsyncClient) -> None:
    path, headers = "/topics/orders/messages", {"idempotency-key": "k-1"}
    await client.post(path, json={"body": {"json": {"a": 1}}}, headers=headers)

    for text in ('{"a":1}', '{"a": 1}'):
        other = await client.post(path, json={"body": {"text": text}}, headers=headers)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")
