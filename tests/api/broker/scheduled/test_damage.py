"""Delayed messages that cannot be read, or whose delivery fails."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from eruca.contract.errors import DiskFullError
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker, rot, rotten_count
from support.clocks import ManualClock
from support.scheduled_calls import pull, send
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_a_message_that_has_rotted_while_it_waited_holds_up_none_and_is_not_spread(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with open_broker(tmp_path, clock) as app, client_of(app) as client:
        await send(client, body={"text": "rotten one"}, delay_seconds=10)
        await send(client, body={"text": "sound one"}, delay_seconds=10)
        rot(app, b"rotten one")
        shown = (await client.get("/scheduled")).json()
        clock.advance(10)
        counts = broker_of(app).timers.counts
        await until(lambda: counts.dropped == 1)

        assert [message["body"]["text"] for message in await pull(client)] == ["sound one"]
        assert (len(shown["scheduled"]), len(shown["damaged"])) == (1, 1)
        assert "is damaged" in shown["damaged"][0]["reason"]
        assert (counts.fired, counts.dropped, rotten_count(app)) == (1, 1, 1)


async def test_a_message_is_dropped_once_that_is_in_the_log_and_not_with_each_attempt(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    broker = broker_of(app)
    await send(client, delay_seconds=10)
    await client.delete("/topics/orders")
    broker.store.refusal = DiskFullError("the disk is 91% full")
    clock.advance(10)
    for _ in range(3):
        with pytest.raises(DiskFullError):
            await broker.timers.fire()
    assert broker.timers.counts.dropped == 0

    broker.store.refusal = None
    await broker.timers.fire()

    await until(lambda: broker.timers.counts.dropped == 1)
    assert (broker.timers.counts.fired, len(broker.store.timers)) == (0, 0)
