"""Deliveries from queues that lag behind the log or cannot be read."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import httpx
import pytest

from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.queue_files import QueueFiles
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of
from support.delivery_clients import DeliveryClient, texts
from support.group_members import held
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


def fail_queue_0(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
    """Have the disk refuse what *method* does with queue 0."""
    real = getattr(owner, method)

    def failing(one: ConsumeQueue | QueueFiles, *args: Any) -> Any:  # noqa: ANN401
        files = one.files if isinstance(one, ConsumeQueue) else one
        if files.directory.endswith("orders/0"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(one, *args)

    monkeypatch.setattr(owner, method, failing)


async def test_a_queue_that_lags_does_not_hold_up_the_others_and_is_told_where_they_are_empty(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=2)
    with monkeypatch.context() as disk:
        fail_queue_0(disk, ConsumeQueue, "put_run")
        await orders.send("late", queue_id=0)
        await orders.send("there", queue_id=1)

        others = await orders.receive()
        refused = await orders.ask()
    await broker_of(app).store.upkeep.checkpoint()

    assert texts(others) == ["there"]
    assert refused.status_code == 503
    assert refused.headers["content-type"] == "application/problem+json"
    assert int(refused.headers["retry-after"]) > 0
    assert "the consume queue 0 of 'orders'" in refused.json()["detail"]
    assert texts(await orders.receive()) == ["late"]


async def test_a_held_request_gets_what_a_queue_lacked_once_that_has_caught_up(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=2)
    with monkeypatch.context() as disk:
        fail_queue_0(disk, ConsumeQueue, "put_run")
        await orders.send("late", queue_id=0)
        waiting = asyncio.create_task(orders.receive(wait_seconds=30))
        await held(app)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await broker_of(app).store.upkeep.checkpoint()

        assert texts(await waiting) == ["late"]


async def test_a_held_request_is_told_of_a_queue_that_lags_when_its_time_is_over(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=2)
    fail_queue_0(monkeypatch, ConsumeQueue, "put_run")
    await orders.send("late", queue_id=0)

    refused = await orders.ask(wait_seconds=0.1)

    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")


async def test_a_queue_that_cannot_be_read_does_not_hold_up_the_others(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=2)
    await orders.send("unreadable", queue_id=0)
    await orders.send("there", queue_id=1)
    with monkeypatch.context() as disk:
        fail_queue_0(disk, QueueFiles, "read")
        others = await orders.receive()
        refused = await orders.ask()

    assert texts(others) == ["there"]
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert texts(await orders.receive()) == ["unreadable"]
