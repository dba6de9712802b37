"""Delayed messages: limits and refusals."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca.contract.limits import PROPERTIES_SIZE_MAX
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker
from support.clocks import ManualClock
from support.scheduled_calls import listed, nothing_waits, now_of, send

pytestmark = pytest.mark.anyio


async def test_where_messages_wait_nobody_reads_or_sends(client: httpx.AsyncClient) -> None:
    await send(client, delay_level=18)
    for topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"):
        pulled = await client.get(f"/topics/{topic}/queues/0/messages", params={"offset": 0})
        sent = await client.post(f"/topics/{topic}/messages", json={"body": {"text": "x"}})
        assert pulled.status_code == 404
        assert (sent.status_code, sent.json()["code"]) == (403, "system-topic-protected")


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"delay_seconds": -1}, "/body/delay_seconds"),
        ({"delay_seconds": 40 * 86_400 + 1}, "/body/delay_seconds"),
        ({"delay_seconds": "soon"}, "/body/delay_seconds"),
        ({"delay_seconds": True}, "/body/delay_seconds"),
        ({"delay_level": 0}, "/body/delay_level"),
        ({"delay_level": 19}, "/body/delay_level"),
        ({"delay_level": 1.5}, "/body/delay_level"),
        ({"deliver_at": "tomorrow"}, "/body/deliver_at"),
        ({"deliver_at": "2026-11-21T08:00:00"}, "/body/deliver_at"),
        ({"deliver_at": 1_795_248_000}, "/body/deliver_at"),
        ({"deliver_at": "9999-12-31T23:59:59Z"}, "/body/deliver_at"),
        ({"delay_seconds": 1, "delay_level": 1}, "/body/delay_level"),
        ({"deliver_at": "2020-01-01T00:00:00Z", "delay_seconds": 1}, "/body/delay_seconds"),
    ],
)
async def test_nonsense_is_refused_and_stores_nothing(
    client: httpx.AsyncClient, app: ServiceApp, fields: dict[str, Any], pointer: str
) -> None:
    end = broker_of(app).store.log_max_offset

    answer = await client.post("/topics/orders/messages", json={"body": {"text": "x"}} | fields)

    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert broker_of(app).store.log_max_offset == end


async def test_forty_days_are_the_most_and_the_limit_is_named(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await send(client, delay_seconds=40 * 86_400)
    late = (now_of(clock) + timedelta(days=40, milliseconds=1)).isoformat()
    for field, value in (("delay_seconds", 40 * 86_400 + 0.001), ("deliver_at", late)):
        answer = await client.post(
            "/topics/orders/messages", json={"body": {"text": "x"}, field: value}
        )

        assert answer.status_code == 422, answer.text
        assert "delay_seconds_max of this broker is 3456000" in answer.json()["detail"]


async def test_delays_have_limits_with_names(tmp_path: Path) -> None:
    async with (
        open_broker(tmp_path / "limited", delay_seconds_max=60, timers_max=2) as app,
        client_of(app) as client,
    ):
        long = await client.post(
            "/topics/orders/messages", json={"body": {"text": "x"}, "delay_level": 6}
        )
        assert (long.status_code, "delay_seconds_max" in long.json()["detail"]) == (422, True)
        for seconds in (60.001, 40 * 86_400 + 1, 1e300):
            long = await client.post(
                "/topics/orders/messages", json={"body": {"text": "x"}, "delay_seconds": seconds}
            )
            assert (long.status_code, "delay_seconds_max" in long.json()["detail"]) == (422, True)
        for _ in range(2):
            await send(client, delay_seconds=50)

        refused = await client.post(
            "/topics/orders/messages", json={"body": {"text": "x"}, "delay_seconds": 50}
        )

        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert "timers_max" in refused.json()["detail"]
        assert refused.headers["retry-after"]
        assert (await send(client))["queue_offset"] == 0  # what does not wait is not concerned


async def test_properties_that_leave_no_room_for_a_delay_are_refused(
    client: httpx.AsyncClient,
) -> None:
    message = {"body": {"text": "x"}, "properties": {"a": "b" * 32_680}}
    at_once = await client.post("/topics/orders/messages", json=message)
    later = await client.post("/topics/orders/messages", json=message | {"delay_seconds": 9})

    assert at_once.status_code == 201, at_once.text
    assert (later.status_code, later.json()["code"]) == (413, "too-large")


async def test_the_most_properties_that_may_wait_at_a_level_can_be_carried_forward(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    async def status_of(size: int) -> int:
        message = {"body": {"text": "x"}, "properties": {"a": "b" * size}, "delay_level": 1}
        answer = await client.post("/topics/orders/messages?queue_id=1", json=message)
        return answer.status_code

    accepted, refused = 32_000, PROPERTIES_SIZE_MAX
    while refused - accepted > 1:
        size = (accepted + refused) // 2
        if await status_of(size) == 201:
            accepted = size
        else:
            refused = size
    broker = broker_of(app)
    expected = len(await listed(client))

    await broker.timers.carry_forward(broker.store.log_max_offset)
    clock.advance(1)
    await nothing_waits(app)

    assert (broker.timers.counts.fired, broker.timers.counts.dropped) == (expected, 0)
    assert broker.store.queues.range("orders", 1) == (0, expected)
