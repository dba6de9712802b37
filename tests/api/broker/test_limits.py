"""Limits: what is too much is refused by name, before it takes memory, and given back after."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from eruca.contract.errors import StoreFailedError
from eruca.contract.limits import BODY_SIZE_MAX
from eruca.contract.wire import RECORDS_MEDIA_TYPE
from eruca_chassis.admission.budget import RESERVE_SIZE
from eruca_chassis.app import ServiceApp
from support.brokers import JSON, RECORDS, batch, broker_of, client_of, open_broker, record
from support.delivery_clients import DeliveryClient, texts
from support.members import joined
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

AS_RECORDS = {"accept": RECORDS_MEDIA_TYPE}


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[ServiceApp]:
    size = 13 * 1024**2
    async with open_broker(
        tmp_path / "small",
        bytes_in_flight_max=size,
        consume_bytes_in_flight_max=size,
        client_share=1,
    ) as app:
        yield app


def scope(
    path: str, *, content_length: int | None, content_type: bytes, client: str
) -> dict[str, object]:
    headers = [(b"host", b"localhost"), (b"content-type", content_type)]
    if content_length is not None:
        headers.append((b"content-length", b"%d" % content_length))
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": headers,
        "client": (client, 1),
    }


class Upload:
    """A request whose body comes when the test says so."""

    def __init__(
        self, app: ServiceApp, *, content_length: int | None, client: str = "127.0.0.1"
    ) -> None:
        self.pieces: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self.answer: list[dict[str, object]] = []

        async def send(message: dict[str, object]) -> None:
            self.answer.append(message)

        self.task = asyncio.create_task(
            app(
                scope(
                    "/v1/topics/orders/messages",
                    content_length=content_length,
                    content_type=b"application/json",
                    client=client,
                ),
                self.pieces.get,
                send,  # type: ignore[arg-type]  # a dict is the message it is given
            )
        )

    def feed(self, size: int, *, more: bool = True) -> None:
        self.pieces.put_nowait({"type": "http.request", "body": b" " * size, "more_body": more})

    def leave(self) -> None:
        self.pieces.put_nowait({"type": "http.disconnect"})


async def in_flight(app: ServiceApp, size: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while broker_of(app).in_flight.used != size:  # noqa: ASYNC110  (it has no event for this)
            await asyncio.sleep(0)


async def test_what_is_only_announced_takes_hardly_anything(small: ServiceApp) -> None:
    uploads = [Upload(small, content_length=6 * 1024**2) for _ in range(91)]
    await in_flight(small, 91 * RESERVE_SIZE)

    async with client_of(small) as client:
        large = json.dumps({"body": {"text": "x" * BODY_SIZE_MAX}}).encode()
        sent = await client.post("/topics/orders/messages", content=large, headers=JSON)
        ready = await client.get("http://localhost/readyz")

    assert (sent.status_code, ready.status_code) == (201, 200)
    for upload in uploads:
        upload.leave()
        await upload.task
        assert upload.answer == []
    await in_flight(small, 0)


@pytest.mark.parametrize("content_length", [6 * 1024**2, None], ids=["announced", "chunked"])
async def test_a_body_is_paid_for_as_it_comes(
    small: ServiceApp, content_length: int | None
) -> None:
    uploads = [Upload(small, content_length=content_length) for _ in range(3)]
    for upload in uploads[:2]:
        for _ in range(5):
            upload.feed(1024**2)
    await in_flight(small, 10 * 1024**2 + RESERVE_SIZE)
    for _ in range(2):
        uploads[2].feed(1024**2)
    await in_flight(small, 12 * 1024**2)

    uploads[2].feed(1024**2 + 1)

    await uploads[2].task
    assert uploads[2].answer[0]["status"] == 429
    await in_flight(small, 10 * 1024**2)
    for upload in uploads[:2]:
        upload.leave()
        await upload.task
    await in_flight(small, 0)


async def fill(app: ServiceApp) -> list[Upload]:
    """Use up the senders' budget by bodies that have come, and do not end."""
    uploads = [Upload(app, content_length=6 * 1024**2) for _ in range(3)]
    for upload, size in zip(uploads, (6 * 1024**2 - 1, 6 * 1024**2 - 1, 1024**2), strict=True):
        upload.feed(size)
    await in_flight(app, 13 * 1024**2 - 2)
    return uploads


async def test_senders_that_use_up_their_budget_are_refused_and_lock_no_consumer_out(
    small: ServiceApp,
) -> None:
    async with client_of(small) as client:
        consumer = DeliveryClient(client, "warehouse", "orders")
        await consumer.create()
        await consumer.send("one", keys=["k"])
        uploads = await fill(small)

        refused = await client.post("/topics/orders/messages", json={"body": {"text": "x"}})
        ready = await client.get("http://localhost/readyz")
        [delivery] = await consumer.receive(count_max=1)
        await joined(client, "books", "orders")
        answers = [
            await client.get("/topics/orders/queues/0/messages?offset=0"),
            await client.get("/topics/orders/queues/0/messages?offset=0", headers=AS_RECORDS),
            await client.post(
                "/pull", json={"queues": [{"topic": "orders", "queue_id": 0, "offset": 0}]}
            ),
            await client.get("/topics/orders/messages?key=k"),
            await client.get("/log?from_offset=0", headers={"accept": "application/json"}),
            await consumer.ack(delivery),
            await client.put(
                "/groups/magazines/offsets",
                json={"offsets": [{"topic": "orders", "queue_id": 0, "offset": 1}]},
            ),
        ]

    assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
    assert "bytes_in_flight_max" in refused.json()["detail"]
    assert refused.json()["retryable"] is True
    assert int(refused.headers["retry-after"]) >= 1
    assert (ready.status_code, ready.json()["code"]) == (503, "not-ready")
    assert "bytes_in_flight_max is exhausted" in ready.json()["detail"]
    assert ready.headers["retry-after"] == "1"
    assert [a.status_code for a in answers if a.status_code not in (200, 201, 204)] == []
    for upload in uploads:
        upload.leave()
        await upload.task
    await in_flight(small, 0)
    async with client_of(small) as client:
        assert (await client.get("http://localhost/readyz")).status_code == 200


async def test_one_client_takes_no_more_than_its_share(tmp_path: Path) -> None:
    async with open_broker(
        tmp_path / "shared", bytes_in_flight_max=16 * 1024**2, client_share=0.5
    ) as app:
        uploads = [Upload(app, content_length=6 * 1024**2, client=f"2001:db8::{n}") for n in (1, 2)]
        for upload in uploads:
            upload.feed(4 * 1024**2)
        await in_flight(app, 8 * 1024**2)
        refused = Upload(app, content_length=10, client="2001:db8::3")
        other = Upload(app, content_length=6 * 1024**2, client="2001:db8:0:1::1")
        other.feed(6 * 1024**2 - 1)

        await refused.task
        await in_flight(app, 14 * 1024**2 - 1)

        assert refused.answer[0]["status"] == 429
        assert other.answer == []
        for upload in (*uploads, other):
            upload.leave()
            await upload.task


async def test_a_chunked_body_ends_at_the_limit(app: ServiceApp) -> None:
    upload = Upload(app, content_length=None)
    for _ in range(7):
        upload.feed(1024**2)

    await upload.task

    assert upload.answer[0]["status"] == 413
    assert broker_of(app).in_flight.used == 0


@pytest.mark.parametrize("content_length", [7 * 1024**2, 10**30])
async def test_a_body_announced_too_large_is_refused_unread(
    app: ServiceApp, content_length: int
) -> None:
    upload = Upload(app, content_length=content_length)

    await upload.task

    assert upload.answer[0]["status"] == 413


async def test_whatever_happens_everything_is_given_back(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    good = record("orders", queue_id=0)
    for content in (batch([good]), batch([good])[:-1], b"", bytes(5 * 1024**2)):
        await client.post("/topics/orders/queues/0/records", content=content, headers=RECORDS)
    for text in ("x", "", "x" * BODY_SIZE_MAX):
        await client.post("/topics/orders/messages", json={"body": {"text": text}})
    for path in ("/topics/orders/queues/0/messages?offset=0", "/log?from_offset=0"):
        await client.get(path)
    await client.post("/pull", json={"queues": [{"topic": "orders", "queue_id": 0, "offset": 0}]})
    await client.post("/pull", content=b"{", headers=JSON)

    assert broker_of(app).in_flight.used == 0


async def test_answers_need_room_too(small: ServiceApp) -> None:
    budget = broker_of(small).consume_in_flight
    async with client_of(small) as client:
        for _ in range(2):
            message = {"body": {"text": "x" * BODY_SIZE_MAX}, "keys": ["k"]}
            sent = await client.post("/topics/orders/messages?queue_id=0", json=message)
        room = 1024**2
        budget.take(budget.maximum - room, "others")

        pull = "/topics/orders/queues/0/messages?offset=0"
        feed = f"/log?from_offset={sent.json()['log_offset']}"
        record_ = f"/log/records/{sent.json()['log_offset']}"
        for path in (pull, feed, record_, "/topics/orders/messages?key=k"):
            refused = await client.get(path, headers={"accept": "application/json"})
            assert (refused.status_code, refused.json()["code"]) == (429, "overloaded"), path
            assert "consume_bytes_in_flight_max" in refused.json()["detail"]
        # What goes out as it lies in the log takes hardly any memory.
        assert (await client.get(pull, headers=AS_RECORDS)).status_code == 200
        assert (await client.get(feed)).status_code == 200
        budget.give(budget.maximum - room, "others")
        assert (await client.get("/topics/orders/messages?key=k")).status_code == 200
    assert budget.used == 0


async def test_a_store_that_takes_no_writes_says_why_and_still_reads(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    await client.post("/topics/orders/messages?queue_id=0", json={"body": {"text": "x"}})
    broker_of(app).store.refusal = StoreFailedError("the disk is on fire", retry_after_seconds=5)

    json_send = await client.post("/topics/orders/messages", json={"body": {"text": "x"}})
    record_send = await client.post(
        "/topics/orders/queues/0/records",
        content=batch([record("orders", queue_id=0)]),
        headers=RECORDS,
    )
    changed = await client.put("/topics/other", json={})
    read = await client.get("/topics/orders/queues/0/messages?offset=0")
    status = (await client.get("/status")).json()

    for refused in (json_send, record_send, changed):
        assert (refused.status_code, refused.json()["code"]) == (503, "store-failed")
        assert refused.headers["retry-after"] == "5"
    assert len(read.json()["messages"]) == 1
    assert (status["is_writable"], status["refusal"]) == (False, "the disk is on fire")


async def test_status_and_metrics_tell_what_is_going_on(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    for _ in range(3):
        await client.post("/topics/orders/messages?queue_id=0", json={"body": {"text": "x"}})
    await client.get("/topics/orders/queues/0/messages?offset=1")

    status = (await client.get("/status")).json()
    metrics = (await client.get("http://localhost/metrics")).text

    assert (status["broker_name"], status["cluster"], status["broker_id"]) == (
        "broker-a",
        "eruca",
        0,
    )
    assert (status["topics"], status["groups"], status["held_requests"]) == (1, 0, 0)
    assert status["log"]["max_offset"] == broker_of(app).store.log_max_offset
    assert {projection["behind_bytes"] for projection in status["projections"]} >= {0}
    assert "eruca_broker_messages_in_total 3.0" in metrics
    assert "eruca_broker_messages_out_total 2.0" in metrics
    assert 'eruca_broker_topic_messages_in_total{topic="orders"} 3.0' in metrics
    assert 'eruca_broker_topic_messages_out_total{topic="orders"} 2.0' in metrics
    assert 'eruca_broker_append_seconds_bucket{le="+Inf"} 3.0' in metrics
    assert f"eruca_broker_log_max_offset {float(status['log']['max_offset'])}" in metrics
    assert 'eruca_broker_projection_behind_bytes{projection="consume_queues"} 0.0' in metrics


async def test_a_method_that_a_hot_path_refuses_is_counted_by_that_path(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    templates = {route.template for route in app.hot.routes}
    by_verb = {template for template in templates if "}:" in template}
    templates -= by_verb  # where an ordinary route sees an id with a colon
    for template in templates:
        path = re.sub(r"\{\w+\}", "0", template)
        assert (await client.patch(f"http://localhost{path}")).status_code == 405

    metrics = (await client.get("http://localhost/metrics")).text

    counted = re.findall(r'total\{method="PATCH",route="([^"]+)",status="405"\} 1\.0', metrics)
    assert set(counted) == templates


async def test_topics_and_groups_have_a_limit_with_a_name(tmp_path: Path) -> None:
    few = open_broker(tmp_path / "few", topics_max=3, groups_max=2)  # one topic is the broker's
    async with few as app, client_of(app) as client:
        message = {"body": {"text": "x"}}
        for topic in ("one", "two"):
            assert (await client.post(f"/topics/{topic}/messages", json=message)).status_code == 201
        by_sending = await client.post("/topics/three/messages", json=message)
        by_name = await client.put("/topics/three", json={})
        assert (await client.put("/topics/two", json={"ordered": True})).status_code == 200

        commit = {"offsets": [{"topic": "one", "queue_id": 0, "offset": 0}]}
        for group in ("g1", "g2", "g1"):
            answer = await client.put(f"/groups/{group}/offsets", json=commit)
            assert answer.status_code == 204
        third = await client.put("/groups/g3/offsets", json=commit)

        for refused, limit in (
            (by_sending, "topics_max"),
            (by_name, "topics_max"),
            (third, "groups_max"),
        ):
            assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
            assert limit in refused.json()["detail"]
        await client.delete("/topics/one")
        assert (await client.post("/topics/three/messages", json=message)).status_code == 201


async def test_dead_letters_have_their_topic_however_many_topics_there_are(tmp_path: Path) -> None:
    few = open_broker(tmp_path / "few", topics_max=2)  # one topic is the broker's
    async with few as app, client_of(app) as client:
        orders = DeliveryClient(client)
        await orders.create(retries_max=0)
        assert (await client.put("/topics/another", json={})).status_code == 409
        await orders.send("bad", "good")

        assert (await orders.nack(*await orders.receive(1))).is_success

        assert texts(await orders.receive()) == ["good"]
        letters = (await client.get("/groups/billing/dead-letters")).json()["dead_letters"]
        assert [letter["origin_offset"] for letter in letters] == [0]
