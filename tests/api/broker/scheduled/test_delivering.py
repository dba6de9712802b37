"""Delayed messages are delivered when it is time, and as they were sent."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker
from support.clocks import ManualClock
from support.scheduled_calls import listed, moment, nothing_waits, now_of, pull, send

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("way", ["delay_seconds", "deliver_at"])
async def test_a_delayed_message_comes_when_it_is_time_and_as_it_was_sent(
    client: httpx.AsyncClient, clock: ManualClock, way: str
) -> None:
    """Delivered by the broker's own loop."""
    due = now_of(clock) + timedelta(seconds=0.15)
    delay = 0.15 if way == "delay_seconds" else due.isoformat()
    receipt = await send(client, tag="x", keys=["k"], properties={"a": "b"}, flag=3, **{way: delay})
    assert await pull(client) == []

    clock.advance(0.15)
    [message] = await pull(client, wait_seconds=20)

    assert receipt["queue_offset"] is None
    assert (receipt["topic"], receipt["queue_id"]) == ("orders", 1)
    assert moment(message["stored_at"]) == moment(receipt["deliver_at"]) == due
    assert message["message_id"] == receipt["message_id"]
    assert (message["queue_offset"], message["topic"]) == (0, "orders")
    assert (message["tag"], message["keys"], message["flag"]) == ("x", ["k"], 3)
    assert message["properties"] == {"a": "b"}
    assert message["body"] == {"text": "later"}
    assert message["born_host"] == "10.1.2.3:4567"
    assert (await pull(client)) == [message]


async def test_a_delay_level_is_worth_what_it_is_in_rocketmq(client: httpx.AsyncClient) -> None:
    minutes = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
    for level, seconds in enumerate((1, 5, 10, 30, *(60 * n for n in minutes)), 1):
        receipt = await send(client, delay_level=level)
        delay = moment(receipt["deliver_at"]) - moment(receipt["stored_at"])
        assert delay == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "delay",
    [
        {"delay_level": 3},
        {"delay_seconds": 10},
        {"delay_seconds": 9.9991},  # the first millisecond that is not too early
        {"deliver_at": "2023-11-14T22:13:30Z"},
        {"deliver_at": "2023-11-14T23:13:30.000+01:00"},
        {"deliver_at": "2023-11-14T22:13:29.9991Z"},
    ],
)
async def test_a_message_comes_in_its_very_millisecond(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock, delay: dict[str, Any]
) -> None:
    receipt = await send(client, **delay)
    assert receipt["deliver_at"] == "2023-11-14T22:13:30.000Z"

    clock.advance(9.999)
    await broker_of(app).timers.fire()
    assert await pull(client) == []
    clock.advance(0.001)
    await broker_of(app).timers.fire()

    [message] = await pull(client, wait_seconds=5)
    assert message["stored_at"] == "2023-11-14T22:13:30.000Z"


@pytest.mark.parametrize("delay", [{"delay_level": 1}, {"delay_seconds": 1}])
async def test_after_a_clock_was_set_back_a_delay_is_as_long_as_ever(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock, delay: dict[str, int]
) -> None:
    await send(client)
    clock.advance(-3_600)
    receipt = await send(client, **delay)
    assert moment(receipt["deliver_at"]) == now_of(clock) + timedelta(seconds=1)

    clock.advance(0.999)
    assert not await broker_of(app).timers.fire()
    clock.advance(0.001)
    await nothing_waits(app)

    assert len(await pull(client)) == 2


async def test_a_clock_that_steps_neither_loses_nor_doubles_across_restarts(
    tmp_path: Path, clock: ManualClock
) -> None:
    texts: list[str] = []
    for step in (-7_200, 7_260, -60, 86_400):  # seconds, each while the broker is down
        async with open_broker(tmp_path / "steps", clock) as app, client_of(app) as client:
            await send(client, delay_seconds=3_600, body={"text": f"before {step}"})
            await send(client, delay_seconds=0.001, body={"text": f"soon {step}"})
        clock.advance(step)
    clock.advance(7_200)
    async with open_broker(tmp_path / "steps", clock) as app, client_of(app) as client:
        while await broker_of(app).timers.fire():
            pass
        texts = [message["body"]["text"] for message in await pull(client)]
        assert await listed(client) == []

    steps = (-7_200, 7_260, -60, 86_400)
    assert sorted(texts) == sorted(
        f"{what} {step}" for what in ("before", "soon") for step in steps
    )


async def test_a_time_that_has_passed_delays_nothing(client: httpx.AsyncClient) -> None:
    first = await send(client, deliver_at="2020-01-01T00:00:00Z")
    second = await send(client, delay_seconds=0)

    assert [first["queue_offset"], second["queue_offset"]] == [0, 1]
    assert first["deliver_at"] is None
    assert len(await pull(client)) == 2


async def test_a_batch_may_hold_messages_of_every_kind(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/topics/orders/messages",
        params={"queue_id": 1},
        json={
            "messages": [
                {"body": {"text": "0"}, "delay_seconds": 60},
                {"body": {"text": "1"}},
                {"body": {"text": "2"}, "delay_level": 9},
                {"body": {"text": "3"}},
                {"body": {"text": "4"}, "delay_level": 9},
            ]
        },
    )

    receipts = answer.json()["messages"]
    assert answer.status_code == 201
    assert [receipt["queue_offset"] for receipt in receipts] == [None, 0, None, 1, None]
    assert [message["body"]["text"] for message in await pull(client)] == ["1", "3"]
    for index, receipt in enumerate(receipts):
        record = await client.get(f"/log/records/{receipt['log_offset']}")
        assert record.json()["message"]["body"] == {"text": str(index)}
        assert record.json()["message"]["message_id"] == receipt["message_id"]
    assert await listed(client) == [receipts[i]["message_id"] for i in (0, 2, 4)]
