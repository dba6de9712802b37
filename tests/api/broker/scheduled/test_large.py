"""Delayed messages as large as they may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.contract.records import BLANK_SIZE_MIN, Host
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from support.brokers import broker_of, client_of, open_broker, record
from support.clocks import ManualClock
from support.scheduled_calls import listed, nothing_waits, pull, send
from support.waiting import until

pytestmark = pytest.mark.anyio


HOST = Host.parse("127.0.0.1", 10_911)
SEGMENT_SIZE = 64 * 1024  # the smallest


async def test_messages_that_no_segment_holds_together_are_delivered_one_after_the_other(
    tmp_path: Path, clock: ManualClock
) -> None:
    settings = {"segment_bytes": SEGMENT_SIZE}
    sizes = (10_000, 60_000, 10, 60_000)
    async with open_broker(tmp_path / "small", clock, **settings) as app, client_of(app) as client:
        for size in sizes:
            await send(client, body={"text": "x" * size}, delay_seconds=5)

        clock.advance(5)
        await nothing_waits(app)

        answer = await client.get("/topics/orders/queues/1/messages", params={"offset": 0})
        found = [len(message["body"]["text"]) for message in answer.json()["messages"]]
        assert found == list(sizes)


@pytest.mark.parametrize("is_carried", [False, True])
async def test_the_largest_message_that_may_wait_can_be_delivered(
    tmp_path: Path, clock: ManualClock, is_carried: bool
) -> None:
    settings = {"segment_bytes": SEGMENT_SIZE}
    async with open_broker(tmp_path / "small", clock, **settings) as app, client_of(app) as client:

        async def status_of(size: int) -> int:
            answer = await client.post(
                "/topics/orders/messages?queue_id=1",
                json={"body": {"text": "x" * size}, "delay_level": 1},
            )
            return answer.status_code

        accepted, refused = 60_000, SEGMENT_SIZE
        while refused - accepted > 1:
            size = (accepted + refused) // 2
            if await status_of(size) == 201:
                accepted = size
            else:
                assert await status_of(size) == 413
                refused = size
        await send(client, delay_level=1)
        if is_carried:
            await broker_of(app).timers.carry_forward(broker_of(app).store.log_max_offset)

        clock.advance(1)
        await nothing_waits(app)

        assert await listed(client) == []
        assert broker_of(app).timers.counts.dropped == 0
        found = broker_of(app).store.queues.range("orders", 1)[1]
        assert found == broker_of(app).timers.counts.fired > 1


async def test_what_is_too_large_to_be_delivered_stops_nothing_behind_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    settings = {"segment_bytes": SEGMENT_SIZE}
    async with open_broker(tmp_path / "small", clock, **settings) as app, client_of(app) as client:
        await send(client)
        wait, place = Wait(deliver_at_ms=clock.now_ms() + 1_000), Destination("orders", 1)
        room = SEGMENT_SIZE - BLANK_SIZE_MIN - len(waiting(record("orders", b""), wait, place))
        large = waiting(record("orders", b"x" * room), wait, place)
        await broker_of(app).store.append(batch_of_records(*wait.place, [large]), HOST)
        await send(client, delay_seconds=1)

        clock.advance(1)
        await nothing_waits(app)

        assert [message["queue_offset"] for message in await pull(client)] == [0, 1]
        await until(lambda: broker_of(app).timers.counts.dropped == 1)
