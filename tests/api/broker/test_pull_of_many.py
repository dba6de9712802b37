"""Pulls of many queues: all are waited for, limits are shared, and each fault names its queue."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import httpx
import pytest

from eruca.contract.errors import error_of_problem
from eruca.contract.wire import decode_multi_pull
from eruca.core.consuming.refused_queues import refused_places
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker
from support.clocks import ManualClock
from support.pulled_messages import AS_RECORDS, QUEUE, held, position, put, texts

pytestmark = pytest.mark.anyio


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
