"""Held pulls: answered by an arrival, the end of their time, a deletion or a stop."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker
from support.clocks import ManualClock
from support.patience import PATIENCE_SECONDS
from support.pulled_messages import QUEUE, held, put, texts

pytestmark = pytest.mark.anyio


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
