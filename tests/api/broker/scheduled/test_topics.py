"""Delayed messages across restarts, and when their topic or queue is gone."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from eruca_broker.core.state.events import TopicPut
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker
from support.clocks import ManualClock
from support.scheduled_calls import listed, nothing_waits, pull, send
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_what_waits_survives_a_restart_and_comes_once(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with open_broker(tmp_path / "again", clock) as app, client_of(app) as client:
        await send(client, delay_seconds=0.2)
        recalled = await send(client, delay_seconds=0.2)
        late = await send(client, delay_seconds=1_000)
        await client.delete(f"/scheduled/{recalled['recall_handle']}")
    clock.advance(0.2)

    async with open_broker(tmp_path / "again", clock) as app, client_of(app) as client:
        assert len(await pull(client, wait_seconds=5)) == 1
        assert await listed(client) == [late["message_id"]]

    async with open_broker(tmp_path / "again", clock) as app, client_of(app) as client:
        assert len(await pull(client)) == 1
        assert await listed(client) == [late["message_id"]]


async def test_what_waits_for_a_deleted_topic_is_dropped(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    await send(client, delay_seconds=0.1)
    await client.delete("/topics/orders")
    receipt = await client.post(
        "/topics/others/messages",
        params={"queue_id": 1},
        json={"body": {"text": "behind"}, "delay_seconds": 0.15},
    )
    assert receipt.status_code == 201

    clock.advance(0.15)
    await nothing_waits(app)

    pulled = await client.get("/topics/others/queues/1/messages", params={"offset": 0})
    assert len(pulled.json()["messages"]) == 1
    await until(lambda: broker_of(app).timers.counts.dropped == 1)
    assert (await client.get("/topics/orders")).status_code == 404


@pytest.mark.parametrize("is_carried", [False, True], ids=["in its place", "carried forward"])
async def test_what_waits_for_a_deleted_topic_does_not_come_to_a_later_one_of_its_name(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock, *, is_carried: bool
) -> None:
    await send(client, delay_seconds=1)
    await client.delete("/topics/orders")
    await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})
    if is_carried:
        broker = broker_of(app)
        await broker.timers.carry_forward(broker.store.log_max_offset)

    expected = await send(client, delay_seconds=1.1)
    clock.advance(1.1)
    await nothing_waits(app)

    messages = await pull(client)
    assert [message["message_id"] for message in messages] == [expected["message_id"]]
    await until(lambda: broker_of(app).timers.counts.dropped == 1)


async def test_a_queue_that_is_gone_is_not_delivered_to(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    await client.put("/topics/orders", json={"read_queue_count": 4, "write_queue_count": 4})
    answer = await client.post(
        "/topics/orders/messages",
        params={"queue_id": 3},
        json={"body": {"text": "later"}, "delay_seconds": 0.1},
    )
    assert answer.status_code == 201
    await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})

    clock.advance(0.1)
    await nothing_waits(app)

    [message] = await pull(client)
    assert message["queue_id"] == 1


async def test_a_topic_with_no_queues_to_write_to_takes_what_was_accepted_and_stops_no_other(
    app: ServiceApp, clock: ManualClock
) -> None:
    """RocketMQ's operators set a topic so that is to run dry; an imported one may be."""
    async with client_of(app) as client:
        await send(client, delay_seconds=5)
        await client.put("/topics/other", json={"write_queue_count": 1, "read_queue_count": 1})
        answer = await client.post(
            "/topics/other/messages", json={"body": {"text": "x"}, "delay_seconds": 6}
        )
        assert answer.status_code == 201, answer.text
        await broker_of(app).store.change(TopicPut("orders", 2, 0, "rw"))

        clock.advance(6)
        await nothing_waits(app)

        assert [message["queue_offset"] for message in await pull(client)] == [0]
        assert broker_of(app).store.queues.range("other", 0)[1] == 1
        refused = await client.post("/topics/orders/messages", json={"body": {"text": "new"}})
        assert (refused.status_code, refused.json()["code"]) == (403, "permission-denied")
