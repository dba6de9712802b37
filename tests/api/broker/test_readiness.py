"""A broker is ready only while it can do its work; whatever it still can, it goes on doing."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable

import httpx
import pytest

from eruca_broker.store.files.refusals import refusal_of
from eruca_broker.store.writing import writer
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of

pytestmark = pytest.mark.anyio
PATIENCE_SECONDS = 60


async def ready(app: ServiceApp) -> httpx.Response:
    """Ask what a probe asks."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as probe:
        return await probe.get("/readyz")


async def send(client: httpx.AsyncClient, text: str) -> httpx.Response:
    url = "/topics/orders/messages?queue_id=0"
    return await client.post(url, json={"body": {"text": text}})


async def texts(client: httpx.AsyncClient) -> list[str]:
    pulled = await client.get("/topics/orders/queues/0/messages", params={"offset": 0})
    return [message["body"]["text"] for message in pulled.json()["messages"]]


async def test_a_failed_flush_ends_readiness_for_good_and_says_to_restart(
    app: ServiceApp, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await send(client, "kept")).status_code == 201
    store = broker_of(app).store
    assert (await ready(app)).status_code == 200
    with monkeypatch.context() as disk:

        def fail(_: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        disk.setattr("eruca_broker.store.log.segment.os.fdatasync", fail)
        await send(client, "written")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while store.refusal is None:
                with pytest.raises(Exception, match="failed to flush"):
                    await store.upkeep.flush()

    for _ in range(2):  # the disk works again, and nothing is flushed all the same
        refused = await ready(app)
        assert refused.status_code == 503
        assert "failed to flush" in refused.json()["detail"]
        assert "restart the broker" in refused.json()["fix"]
        assert (await send(client, "refused")).status_code == 503
    assert (await texts(client))[0] == "kept"


async def test_a_failed_write_of_the_log_ends_readiness(
    app: ServiceApp, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as disk:
        disk.setattr("eruca_broker.store.log.segment.os.pwritev", fail)
        assert (await send(client, "refused")).status_code == 503

    refused = await ready(app)
    assert (refused.status_code, refused.json()["code"]) == (503, "not-ready")


async def test_a_flush_that_does_not_come_back_ends_readiness_until_it_does(
    app: ServiceApp, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, begun = threading.Event(), threading.Event()
    fdatasync: Callable[[int], None] = os.fdatasync

    def hang(descriptor: int) -> None:
        begun.set()
        assert may_end.wait(PATIENCE_SECONDS)
        fdatasync(descriptor)

    monkeypatch.setattr("eruca_broker.store.log.segment.os.fdatasync", hang)
    monkeypatch.setattr(writer, "FLUSH_SECONDS_MAX", -1.0)
    await send(client, "one")
    flush = asyncio.create_task(broker_of(app).store.upkeep.flush())
    assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)

    stuck = await ready(app)
    may_end.set()
    await flush

    assert (stuck.status_code, stuck.json()["retryable"]) == (503, True)
    assert "flush of the log" in stuck.json()["detail"]
    assert "flush" not in (await ready(app)).text


async def test_a_full_disk_leaves_a_broker_ready_for_readers(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    assert (await send(client, "one")).status_code == 201
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    broker_of(app).store.refusal = refusal_of(full, "the log could not be written")

    assert (await send(client, "two")).json()["code"] == "disk-full"
    assert (await ready(app)).status_code == 200
    assert await texts(client) == ["one"]
