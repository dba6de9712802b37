"""Pulling from one queue and from many, as a client sees it."""

from __future__ import annotations

import asyncio
import errno
import os
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca.contract.errors import error_of_problem
from eruca.contract.limits import PULL_COUNT_MAX
from eruca.contract.records import SysFlag, decode_record
from eruca.contract.wire import (
    RECORDS_MEDIA_TYPE,
    PullStatus,
    decode_multi_pull,
    decode_pull,
)
from eruca.core.consuming.refused_queues import refused_places
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_chassis.app import ServiceApp
from support.brokers import RECORDS, batch, broker_of, client_of, open_broker, record
from support.clocks import ManualClock
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

QUEUE = "/topics/orders/queues/0/messages"
AS_RECORDS = {"accept": RECORDS_MEDIA_TYPE}


async def put(
    client: httpx.AsyncClient, *bodies: str, queue_id: int = 0, tag: str | None = None
) -> None:
    messages = [{"body": {"text": body}, "tag": tag} for body in bodies]
    answer = await client.post(
        "/topics/orders/messages", params={"queue_id": queue_id}, json={"messages": messages}
    )
    assert answer.status_code == 201


async def held(app: ServiceApp, count: int) -> None:
    """Return once *count* requests are being held."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(broker_of(app).held) != count:  # noqa: ASYNC110  (it has no event for this)
            await asyncio.sleep(0)


def texts(answer: dict[str, Any]) -> list[str]:
    return [message["body"]["text"] for message in answer["messages"]]


async def test_messages_come_in_queue_order_up_to_a_count(client: httpx.AsyncClient) -> None:
    await put(client, "a", "b", "c")

    first = (await client.get(QUEUE, params={"offset": 0, "count_max": 2})).json()
    rest = (await client.get(QUEUE, params={"offset": first["next_offset"]})).json()

    assert (texts(first), texts(rest)) == (["a", "b"], ["c"])
    assert (first["status"], first["next_offset"]) == ("found", 2)
    assert (rest["next_offset"], rest["min_offset"], rest["max_offset"]) == (3, 0, 3)


async def test_records_are_the_logs_own_bytes(app: ServiceApp, client: httpx.AsyncClient) -> None:
    await put(client, "a", "b")

    answer = await client.get(QUEUE, params={"offset": 0}, headers=AS_RECORDS)

    assert answer.headers["content-type"] == RECORDS_MEDIA_TYPE
    pulled = decode_pull(answer.content)
    assert (pulled.status, pulled.next_offset, len(pulled.sizes)) == (PullStatus.FOUND, 2, 2)
    first = decode_record(pulled.records)
    read = broker_of(app).store.log_read(first.log_offset, len(pulled.records))
    assert bytes(read.records) == bytes(pulled.records)


async def test_a_large_answer_is_whole_though_it_goes_out_in_pieces(
    client: httpx.AsyncClient,
) -> None:
    """Two queues take turns in the log, so that each answer is made of many slices."""
    for number in range(40):
        await put(client, f"{number}-" + "x" * 10_000, queue_id=number % 2)

    answer = await client.get(
        QUEUE, params={"offset": 0, "bytes_max": 8 * 1024**2}, headers=AS_RECORDS
    )

    pulled = decode_pull(answer.content)
    assert len(pulled.sizes) == 20
    position = 0
    for number, size in enumerate(pulled.sizes):
        assert decode_record(pulled.records, position).body.startswith(b"%d-" % (2 * number))
        position += size


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (0, "found", 2),
        (2, "no_new_message", 2),
        (3, "offset_too_large", 2),
        (2**63 - 1, "offset_too_large", 2),
    ],
)
@pytest.mark.parametrize("headers", [{}, AS_RECORDS], ids=["json", "records"])
async def test_the_status_says_why_there_is_nothing(
    client: httpx.AsyncClient,
    offset: int,
    status: str,
    next_offset: int,
    headers: dict[str, str],
) -> None:
    await put(client, "a", "b")

    answer = await client.get(QUEUE, params={"offset": offset, "wait_seconds": 0}, headers=headers)

    assert answer.status_code == 200
    if headers:
        pulled = decode_pull(answer.content)
        assert (pulled.status, pulled.next_offset) == (status, next_offset)
    else:
        assert (answer.json()["status"], answer.json()["next_offset"]) == (status, next_offset)


@pytest.mark.parametrize("offset", [3, 2**63 - 1])
async def test_only_the_end_of_the_queue_is_waited_at(
    client: httpx.AsyncClient, offset: int
) -> None:
    await put(client, "a")

    answer = await client.get(QUEUE, params={"offset": offset, "wait_seconds": 30})

    assert answer.json()["status"] == "offset_too_large"


async def test_a_filter_passes_the_tags_it_names(client: httpx.AsyncClient) -> None:
    for tag in ("red", "blue", "green", None):
        await put(client, str(tag), tag=tag)

    some = await client.get(QUEUE, params={"offset": 0, "filter": "red || green"})
    none = await client.get(QUEUE, params={"offset": 0, "filter": "yellow"})
    everything = await client.get(QUEUE, params={"offset": 0, "filter": "*"})

    assert texts(some.json()) == ["red", "green"]
    assert (none.json()["status"], none.json()["next_offset"]) == ("no_matched_message", 4)
    assert texts(everything.json()) == ["red", "blue", "green", "None"]


async def test_json_compares_tags_and_records_their_hashes(client: httpx.AsyncClient) -> None:
    """``Aa`` and ``BB`` have one hash."""
    await put(client, "x", tag="BB")

    as_json = await client.get(QUEUE, params={"offset": 0, "filter": "Aa"})
    as_records = await client.get(QUEUE, params={"offset": 0, "filter": "Aa"}, headers=AS_RECORDS)

    assert (as_json.json()["status"], as_json.json()["next_offset"]) == ("no_matched_message", 1)
    assert len(decode_pull(as_records.content).sizes) == 1


async def test_a_held_pull_is_answered_by_an_arrival(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    await put(client, "old")
    pull = asyncio.create_task(client.get(QUEUE, params={"offset": 1, "wait_seconds": 30}))
    await held(app, 1)

    await put(client, "elsewhere", queue_id=1)
    assert len(broker_of(app).held) == 1
    await put(client, "new")

    assert texts((await pull).json()) == ["new"]
    assert len(broker_of(app).held) == 0


async def test_an_arrival_that_the_filter_stops_keeps_holding(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    await put(client, "old")
    pull = asyncio.create_task(
        client.get(QUEUE, params={"offset": 1, "wait_seconds": 30, "filter": "red"})
    )
    await held(app, 1)

    await put(client, "blue one", "blue two", tag="blue")
    assert len(broker_of(app).held) == 1
    await put(client, "red", tag="red")

    answer = (await pull).json()
    assert texts(answer) == ["red"]
    assert answer["next_offset"] == 4


async def test_a_held_pull_whose_queue_cannot_be_read_is_nobody_elses_trouble(
    app: ServiceApp, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(client, "old")
    filtered = asyncio.create_task(
        client.get(QUEUE, params={"offset": 1, "wait_seconds": 30, "filter": "red"})
    )
    await held(app, 1)
    follower = asyncio.create_task(
        client.get(
            "/log",
            params={"from_offset": broker_of(app).store.visible_offset, "wait_seconds": 30},
        )
    )
    await held(app, 2)
    with monkeypatch.context() as disk:

        def fail(*_: object) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        disk.setattr("eruca_broker.store.queues.queue_files.QueueFiles.read", fail)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await put(client, "red", tag="red")
            told = await filtered
            followed = await follower

    assert (told.status_code, followed.status_code) == (503, 200)
    assert texts((await client.get(QUEUE, params={"offset": 1})).json()) == ["red"]


async def test_a_pull_that_expires_tells_what_it_has_seen(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_broker(tmp_path / "still", clock) as app, client_of(app) as client:
        await put(client, "old")
        pull = asyncio.create_task(
            client.get(QUEUE, params={"offset": 1, "wait_seconds": 0.3, "filter": "red"})
        )
        await held(app, 1)

        await put(client, "blue", tag="blue")

        clock.advance(0.3)
        answer = (await pull).json()
    assert (answer["status"], answer["messages"]) == ("no_new_message", [])
    assert (answer["next_offset"], answer["max_offset"]) == (2, 2)


async def test_a_pull_held_on_a_topic_that_is_deleted_is_told(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    await put(client, "old")
    pull = asyncio.create_task(client.get(QUEUE, params={"offset": 1, "wait_seconds": 30}))
    await held(app, 1)

    await client.delete("/topics/orders")

    assert ((await pull).status_code, (await pull).json()["code"]) == (404, "topic-not-found")


async def test_stopping_answers_every_held_request_at_once(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "other") as app, client_of(app) as client:
        await put(client, "old")
        calls: list[Callable[[], Awaitable[httpx.Response]]] = [
            lambda: client.get(QUEUE, params={"offset": 1, "wait_seconds": 30}),
            lambda: client.get("/topics/orders/queues/3/messages?offset=0&wait_seconds=30"),
            lambda: client.post(
                "/pull",
                json={
                    "queues": [{"topic": "orders", "queue_id": 1, "offset": 0}],
                    "wait_seconds": 30,
                },
            ),
            lambda: client.get(
                "/log",
                params={"from_offset": broker_of(app).store.log_max_offset, "wait_seconds": 30},
            ),
        ]
        waiting = [asyncio.ensure_future(call()) for call in calls]
        await held(app, 4)

        app.begin_stop()

        answers = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_SECONDS)
        assert [answer.status_code for answer in answers] == [200] * 4


async def test_more_held_requests_than_allowed_are_told_which_limit_it_is(
    tmp_path: Path,
) -> None:
    async with (
        open_broker(tmp_path / "other", held_requests_max=2) as app,
        client_of(app) as client,
    ):
        await put(client, "old")
        query = {"offset": 1, "wait_seconds": 30}
        waiting = [asyncio.create_task(client.get(QUEUE, params=query)) for _ in range(2)]
        await held(app, 2)

        refused = await client.get(QUEUE, params=query)

        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert "held_requests_max" in refused.json()["detail"]
        assert int(refused.headers["retry-after"]) >= 1
        assert (await client.get(QUEUE, params={"offset": 0})).status_code == 200
        await put(client, "new")
        assert [texts((await pull).json()) for pull in waiting] == [["new"], ["new"]]


async def test_a_client_that_leaves_gives_its_place_back(app: ServiceApp) -> None:
    async with client_of(app) as client:
        await put(client, "old")
    leave = asyncio.Event()
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if not sent:
            sent.append(None)
            return {"type": "http.request", "body": b"", "more_body": False}
        await leave.wait()
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        raise AssertionError(f"nobody is there to get {message}")

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": f"/v1{QUEUE}",
        "query_string": b"offset=1&wait_seconds=30",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
    }
    call = asyncio.create_task(app(scope, receive, send))
    await held(app, 1)

    leave.set()
    await call

    assert len(broker_of(app).held) == 0


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("", "/query/offset"),
        ("offset=-1", "/query/offset"),
        ("offset=9223372036854775808", "/query/offset"),
        ("offset=1e3", "/query/offset"),
        ("offset=%D9%A3", "/query/offset"),
        ("offset=0&offset=1", "/query/offset"),
        ("offset=0&count_max=0", "/query/count_max"),
        (f"offset=0&count_max={PULL_COUNT_MAX + 1}", "/query/count_max"),
        ("offset=0&bytes_max=0", "/query/bytes_max"),
        ("offset=0&bytes_max=99999999", "/query/bytes_max"),
        ("offset=0&wait_seconds=31", "/query/wait_seconds"),
        ("offset=0&wait_seconds=-1", "/query/wait_seconds"),
        ("offset=0&wait_seconds=nan", "/query/wait_seconds"),
        ("offset=0&wait_seconds=inf", "/query/wait_seconds"),
        ("offset=0&wait_seconds=1e999", "/query/wait_seconds"),
        ("offset=0&wait_seconds=1_0", "/query/wait_seconds"),
        ("offset=0&wait_seconds=.", "/query/wait_seconds"),
        ("offset=0&wait_seconds=%D9%A3", "/query/wait_seconds"),
        ("offset=0&filter=%7C%7C", "/query/filter"),
        ("offset=0&filter=" + "x" * 4097, "/query/filter"),
        ("offset=0&ofset=1", "/query/ofset"),
        ("offset=0&max_bytes=1", "/query/max_bytes"),
    ],
)
async def test_a_query_that_is_not_understood_is_422(
    client: httpx.AsyncClient, query: str, pointer: str
) -> None:
    await put(client, "a")

    refused = await client.get(f"{QUEUE}?{query}")

    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_limits_in_another_order_of_words_are_refused_with_their_names(
    client: httpx.AsyncClient,
) -> None:
    await put(client, "a")

    one = (await client.get(f"{QUEUE}?offset=0&max_count=1")).json()
    many = (await client.post("/pull", json={"queues": [position(0)], "max_bytes": 1})).json()

    assert one["detail"] == "/query/max_count: unknown parameter; did you mean 'count_max'?"
    assert "bytes_max, count_max" in one["fix"]
    assert many["detail"] == "/body/max_bytes: unknown field; did you mean 'bytes_max'?"


@pytest.mark.parametrize("wait", ["0", "2.", ".5", "1e-05", "5.0E-4", "2e+0", "-0.0"])
@pytest.mark.parametrize("path", [QUEUE, "/log"])
async def test_seconds_are_written_as_programs_write_numbers(
    client: httpx.AsyncClient, path: str, wait: str
) -> None:
    await put(client, "a")
    begin = "from_offset" if path == "/log" else "offset"

    answer = await client.get(path, params={begin: 0, "wait_seconds": wait})

    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/unknown/queues/0/messages?offset=0", 404, "topic-not-found"),
        ("/topics/orders/queues/4/messages?offset=0", 404, "queue-not-found"),
        ("/topics/orders/queues/x/messages?offset=0", 422, "validation-failed"),
        ("/topics/no.dots/queues/0/messages?offset=0", 422, "validation-failed"),
        ("/topics//queues/0/messages?offset=0", 404, "not-found"),
    ],
)
async def test_a_queue_has_to_be_there(
    client: httpx.AsyncClient, path: str, status: int, code: str
) -> None:
    await put(client, "a")

    refused = await client.get(path)

    assert (refused.status_code, refused.json()["code"]) == (status, code)


@pytest.mark.parametrize("permission", ["w", "none"])
async def test_a_topic_that_may_not_be_read_refuses(
    client: httpx.AsyncClient, permission: str
) -> None:
    await put(client, "a")
    await client.put("/topics/orders", json={"permission": permission})

    refused = await client.get(QUEUE, params={"offset": 0})

    assert (refused.status_code, refused.json()["code"]) == (403, "permission-denied")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/json", "application/json"),
        ("application/*", "application/json"),
        (RECORDS_MEDIA_TYPE, RECORDS_MEDIA_TYPE),
        (f"{RECORDS_MEDIA_TYPE}, */*", RECORDS_MEDIA_TYPE),
        (f"application/json;q=0.5, {RECORDS_MEDIA_TYPE}", RECORDS_MEDIA_TYPE),
        (f"application/json, {RECORDS_MEDIA_TYPE};q=0.5", "application/json"),
        (f"*/*, {RECORDS_MEDIA_TYPE};q=0", "application/json"),
        ("text/html", "application/problem+json"),
        ("application/json;q=0, text/*", "application/problem+json"),
    ],
)
async def test_accept_chooses_the_form(
    client: httpx.AsyncClient, accept: str, content_type: str
) -> None:
    await put(client, "a")

    answer = await client.get(QUEUE, params={"offset": 0}, headers={"accept": accept})

    assert answer.headers["content-type"] == content_type
    assert answer.status_code == (406 if "problem" in content_type else 200)


@pytest.mark.parametrize(
    ("flag", "stored", "shown"),
    [
        (SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB, zlib.compress(b"plain"), {"text": "plain"}),
        (SysFlag.COMPRESSED, zlib.compress(b"plain"), {"text": "plain"}),
        (
            SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB,
            b"not zlib",
            {"base64": "bm90IHpsaWI=", "compression": "zlib"},
        ),
        (
            SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4,
            b"some lz4",
            {"base64": "c29tZSBsejQ=", "compression": "lz4"},
        ),
        (
            SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD,
            b"zstd",
            {"base64": "enN0ZA==", "compression": "zstd"},
        ),
    ],
)
async def test_json_shows_a_compressed_body_plain_or_says_what_it_is(
    client: httpx.AsyncClient, flag: int, stored: bytes, shown: dict[str, str]
) -> None:
    sent = record("orders", stored, queue_id=0, sys_flag=int(flag))
    await client.post("/topics/orders/queues/0/records", content=batch([sent]), headers=RECORDS)

    [message] = (await client.get(QUEUE, params={"offset": 0})).json()["messages"]

    assert message["body"] == shown


async def test_bodies_that_unpack_to_much_end_the_answer_early(
    client: httpx.AsyncClient,
) -> None:
    """Each of the 20 bodies is 4 KB on disk and 4 MB when unpacked."""
    bomb = zlib.compress(bytes(4 * 1024**2))
    flag = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
    sent = [record("orders", bomb, queue_id=0, sys_flag=flag)] * 20
    await client.post("/topics/orders/queues/0/records", content=batch(sent), headers=RECORDS)

    seen, offset = 0, 0
    while offset < 20:
        answer = (await client.get(QUEUE, params={"offset": offset, "count_max": 20})).json()
        assert answer["next_offset"] == offset + len(answer["messages"])
        assert len(answer["messages"]) <= 2
        seen += len(answer["messages"])
        offset = answer["next_offset"]
    assert seen == 20


async def test_queues_of_one_answer_share_the_room_for_unpacked_bodies(
    client: httpx.AsyncClient,
) -> None:
    bomb = zlib.compress(bytes(4 * 1024**2))
    flag = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
    for queue_id in range(4):
        sent = [record("orders", bomb, queue_id=queue_id, sys_flag=flag)] * 2
        path = f"/topics/orders/queues/{queue_id}/records"
        await client.post(path, content=batch(sent), headers=RECORDS)

    offsets = dict.fromkeys(range(4), 0)
    for _ in range(8):
        request = {"queues": [position(*item) for item in offsets.items()]}
        answer = await client.post("/pull", json=request)
        assert len(answer.content) < 40 * 1024**2
        for section in answer.json()["queues"]:
            offsets[section["queue_id"]] = section["answer"]["next_offset"]

    assert set(offsets.values()) == {2}


def position(queue_id: int, offset: int = 0, **more: str) -> dict[str, Any]:
    return {"topic": "orders", "queue_id": queue_id, "offset": offset, **more}


async def test_many_queues_are_pulled_at_once(client: httpx.AsyncClient) -> None:
    await put(client, "a", "b", queue_id=1)
    await put(client, "c", queue_id=3, tag="red")
    request = {"queues": [position(0), position(1), position(3, filter="red"), position(2)]}

    as_json = (await client.post("/pull", json=request)).json()
    as_records = await client.post("/pull", json=request, headers=AS_RECORDS)

    assert [(q["queue_id"], texts(q["answer"])) for q in as_json["queues"]] == [
        (1, ["a", "b"]),
        (3, ["c"]),
    ]
    sections = decode_multi_pull(as_records.content)
    assert [(index, pulled.next_offset) for index, pulled in sections] == [(1, 2), (2, 1)]


async def test_a_pull_of_many_waits_on_all_of_them(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    await put(client, "old")
    request = {"queues": [position(0, 1), position(1), position(2)], "wait_seconds": 30}
    pull = asyncio.create_task(client.post("/pull", json=request))
    await held(app, 1)

    await put(client, "new", queue_id=2)

    [answer] = (await pull).json()["queues"]
    assert (answer["queue_id"], texts(answer["answer"])) == (2, ["new"])


async def test_a_pull_of_many_that_expires_tells_what_it_has_seen(tmp_path: Path) -> None:
    clock = ManualClock()
    request = {"queues": [position(0, 1, filter="red"), position(1)], "wait_seconds": 0.3}
    async with open_broker(tmp_path / "still", clock) as app, client_of(app) as client:
        await put(client, "old")
        pull = asyncio.create_task(client.post("/pull", json=request))
        await held(app, 1)

        await put(client, "blue", tag="blue")

        clock.advance(0.3)
        [answer] = (await pull).json()["queues"]
    assert answer["queue_id"] == 0
    assert (answer["answer"]["status"], answer["answer"]["next_offset"]) == ("no_new_message", 2)


async def test_the_limits_are_shared_by_the_queues_that_have_something(
    client: httpx.AsyncClient,
) -> None:
    for queue_id in (0, 1, 2):
        await put(client, *map(str, range(10)), queue_id=queue_id)
    request = {"queues": [position(q) for q in range(4)], "count_max": 12}

    sections = (await client.post("/pull", json=request)).json()["queues"]

    assert [len(section["answer"]["messages"]) for section in sections] == [4, 4, 4]


@pytest.mark.parametrize(
    ("request_", "status", "pointer"),
    [
        ({"queues": []}, 422, "/body/queues"),
        ({}, 422, "/body/queues"),
        ({"queues": [position(0)] * 2}, 422, "/body/queues/1"),
        ({"queues": [position(n) for n in range(257)]}, 422, "/body/queues"),
        ({"queues": [position(-1)]}, 422, "/body/queues/0/queue_id"),
        ({"queues": [position(0, -1)]}, 422, "/body/queues/0/offset"),
        ({"queues": [position(0, 2**63)]}, 422, "/body/queues/0/offset"),
        ({"queues": [position(0, filter="||")]}, 422, "/body/queues/0/filter"),
        ({"queues": [position(0)], "wait_seconds": 31}, 422, "/body/wait_seconds"),
        ({"queues": [position(0)], "count_max": 0}, 422, "/body/count_max"),
        ({"queues": [position(0)], "colour": 1}, 422, "/body/colour"),
        ({"queues": [position(0)], "max_count": 1}, 422, "/body/max_count"),
        ({"queues": [position(0), position(4)]}, 404, "/body/queues/1"),
        ({"queues": [position(0), {**position(0), "topic": "no"}]}, 404, "/body/queues/1"),
        ({"queues": [position(0), {**position(0), "topic": "n.o"}]}, 422, "/body/queues/1"),
    ],
)
async def test_a_pull_of_many_that_cannot_be_answered_points_at_why(
    client: httpx.AsyncClient, request_: object, status: int, pointer: str
) -> None:
    await put(client, "a")

    refused = await client.post("/pull", json=request_)

    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (status, pointer)


async def test_in_json_a_message_that_cannot_be_read_any_more_is_marked_and_holds_up_none(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    await put(client, "first", "damaged", "last")
    [segment] = (broker_of(app).store.directory / "commitlog").iterdir()
    body_at = segment.read_bytes().index(b"damaged")
    with segment.open("r+b") as file:
        file.seek(body_at - 4)
        file.write(b"\x55")  # the highest byte of the body's size
    await client.put("/groups/billing", json={"start": "earliest"})

    pulls = [(await client.get(QUEUE, params={"offset": offset})).json() for offset in range(3)]

    assert [pull["status"] for pull in pulls] == ["found", "damaged", "found"]
    assert [pull["next_offset"] for pull in pulls] == [1, 2, 3]
    assert (texts(pulls[0]), texts(pulls[2])) == (["first"], ["last"])
    [damaged] = pulls[1]["messages"]
    assert (damaged["queue_offset"], damaged["body"]) == (1, None)
    assert damaged["log_offset"] + damaged["size"] == pulls[2]["messages"][0]["log_offset"]
    assert damaged["damage"]


async def test_a_queue_that_lags_is_pointed_at_and_does_not_hold_up_the_others(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.put("/topics/lagging", json={"read_queue_count": 2, "write_queue_count": 2})
    put_run = ConsumeQueue.put_run

    def failing(queue: ConsumeQueue, first: int, entries: bytes) -> int:
        if queue.files.directory.endswith("lagging/0"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return put_run(queue, first, entries)

    monkeypatch.setattr(ConsumeQueue, "put_run", failing)
    for queue_id in (0, 1):
        url = f"/topics/lagging/messages?queue_id={queue_id}"
        sent = await client.post(url, json={"body": {"text": "x"}})
        assert sent.status_code == 201
    queues = [{"topic": "lagging", "queue_id": queue_id, "offset": 0} for queue_id in (0, 1)]

    both = await client.post("/pull", json={"queues": queues})
    queues[1]["offset"] = 1
    none = await client.post("/pull", json={"queues": queues, "wait_seconds": 30})
    alone = await client.get("/topics/lagging/queues/0/messages?offset=0")
    status = (await client.get("/status")).json()

    assert [queue["queue_id"] for queue in both.json()["queues"]] == [1]
    assert (none.status_code, none.json()["errors"][0]["pointer"]) == (503, "/body/queues/0")
    assert (alone.status_code, alone.json()["code"]) == (503, "unavailable")
    assert status["is_writable"]
    assert status["projections"][0]["failure"] == os.strerror(errno.EIO)
    assert refused_places(error_of_problem(none.json(), 503), 2) == [0]
