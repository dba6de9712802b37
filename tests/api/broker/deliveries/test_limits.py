"""Deliveries: limits, refusals and metrics."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from support.brokers import client_of, open_broker
from support.delivery_clients import DeliveryClient, texts

pytestmark = pytest.mark.anyio


async def test_with_too_much_unfinished_a_group_is_throttled(orders: DeliveryClient) -> None:
    await orders.send(*map(str, range(60)))
    first = await orders.receive()
    second = await orders.receive()

    throttled = (await orders.ask()).json()

    assert len(first) + len(second) == 50
    assert throttled["empty_because"] == "throttled"
    await orders.ack(*first)
    assert len(await orders.receive()) == 10


async def test_what_all_groups_leave_unfinished_has_a_limit_too(
    orders: DeliveryClient, client: httpx.AsyncClient
) -> None:
    other = DeliveryClient(client, "other")
    await other.create()
    await orders.send(*map(str, range(50)))
    await orders.receive()
    await orders.receive()

    assert len(await other.receive()) == 10
    assert (await other.ask()).json()["empty_because"] == "throttled"


async def test_groups_that_nobody_reads_any_more_bring_no_other_to_a_stop(
    orders: DeliveryClient, client: httpx.AsyncClient
) -> None:
    left, other = DeliveryClient(client, "left"), DeliveryClient(client, "other")
    await left.create()
    await other.create()
    await orders.send(*map(str, range(50)))
    for one in (orders, left):
        await one.receive()
        await one.receive()

    for number in range(3):
        got = await other.receive()
        assert texts(got) == [str(number)]
        assert (await other.ask()).json()["empty_because"] == "throttled"
        await other.ack(*got)


async def test_a_group_that_is_switched_off_is_paused(orders: DeliveryClient) -> None:
    await orders.send("a")
    await orders.create(consume_enabled=False)

    assert (await orders.ask()).json()["empty_because"] == "paused"
    await orders.create(consume_enabled=True)
    assert texts(await orders.receive()) == ["a"]


@pytest.mark.parametrize(
    "fields",
    [
        {"count_max": 0},
        {"count_max": 33},
        {"invisible_seconds": 0.5},
        {"invisible_seconds": 43_201},
        {"wait_seconds": 31},
        {"wait_seconds": -1},
        {"surprise": 1},
        {"topic": ""},
        {"filter": "x" * 5_000},
    ],
)
async def test_what_is_out_of_bounds_is_refused(
    orders: DeliveryClient, fields: dict[str, object]
) -> None:
    body = {"topic": "orders", **fields}

    answer = await orders.client.post("/groups/billing/deliveries", json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, "validation-failed")


async def test_a_topic_that_cannot_be_read_is_refused(orders: DeliveryClient) -> None:
    system = await DeliveryClient(orders.client, topic="ERUCA_SYS_EVENTS").ask()
    missing = await DeliveryClient(orders.client, topic="missing").ask()
    await orders.client.put("/topics/orders", json={"permission": "w"})
    forbidden = await orders.ask()

    assert (system.status_code, system.json()["code"]) == (403, "system-topic-protected")
    assert (missing.status_code, missing.json()["code"]) == (404, "topic-not-found")
    assert (forbidden.status_code, forbidden.json()["code"]) == (403, "permission-denied")


async def test_only_so_many_requests_wait(tmp_path: Path) -> None:
    async with (
        open_broker(tmp_path / "small", held_group_requests_max=0) as app,
        client_of(app) as client,
    ):
        orders = DeliveryClient(client)
        await orders.create()

        refused = await orders.ask(wait_seconds=5)

        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert (await orders.ask()).status_code == 200


async def test_metrics_tell_what_has_become_of_deliveries(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    await orders.send("a", "b")
    a, _ = await orders.receive()
    await orders.ack(a)
    await orders.ack(a)

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as root:
        text = (await root.get("/metrics")).text

    assert "eruca_broker_deliveries_total 2.0" in text
    assert "eruca_broker_deliveries_acked_total 1.0" in text
    assert "eruca_broker_stale_handles_total 1.0" in text
    assert "eruca_broker_unfinished_deliveries 1.0" in text
