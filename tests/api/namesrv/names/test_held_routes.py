"""Held requests for routes: answered by a change, by expiry, after their time and at a stop."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from eruca_namesrv.name_server import NameServer
from support.clocks import ManualClock
from support.registered_brokers import LONG, assert_nobody_knows, held, register, registration

pytestmark = pytest.mark.anyio


def watch_of_the_route(client: httpx.AsyncClient, etag: str) -> asyncio.Task[httpx.Response]:
    """Begin a request that is held until the route is another one."""
    return asyncio.create_task(
        client.get(
            "/v1/topics/flights/route",
            params={"wait_seconds": LONG},
            headers={"if-none-match": etag},
        )
    )


async def test_a_held_request_is_answered_as_soon_as_the_route_changes(
    client: httpx.AsyncClient,
) -> None:
    await register(client)
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    request = watch_of_the_route(client, etag)
    await held(client, 1)
    await register(client, version=2, topics=["flights", "something-else"])
    await held(client, 1)

    await register(client, "broker-b", host="10.0.0.2:10911")

    answer = await request
    assert answer.status_code == 200
    assert [q["broker_name"] for q in answer.json()["queues"]] == ["broker-a", "broker-b"]
    assert answer.headers["etag"] != etag
    await held(client, 0)


async def test_a_new_master_reaches_who_waits_for_the_route(client: httpx.AsyncClient) -> None:
    former, new = "10.0.0.1:10911", "10.0.0.2:10911"
    await client.put("/v1/brokers/broker-a/0", json=registration("flights", epoch=7, replica_id=1))
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    request = watch_of_the_route(client, etag)
    await held(client, 1)

    promoted = registration(
        "flights", host=new, epoch=8, replica_id=2, former_store_hosts=[former, new]
    )
    await client.put("/v1/brokers/broker-a/0", json=promoted)

    [broker] = (await request).json()["brokers"]
    assert (broker["epoch"], broker["store_hosts"]) == (8, {"0": new})
    stale = await client.put(
        "/v1/brokers/broker-a/0", json=registration("flights", epoch=7, replica_id=1)
    )
    assert (stale.status_code, stale.json()["code"]) == (409, "stale-epoch")
    [group] = (await client.get("/v1/brokers")).json()["brokers"]
    assert (group["epoch"], group["former_store_hosts"]) == (8, [former])
    assert group["brokers"][0]["role"] == "master"
    assert group["brokers"][0]["replica_id"] == 2


async def test_a_held_request_for_an_unknown_topic_is_answered_when_it_appears(
    client: httpx.AsyncClient,
) -> None:
    request = asyncio.create_task(
        client.get("/v1/topics/flights/route", params={"wait_seconds": LONG})
    )
    await held(client, 1)

    await register(client)

    assert (await request).status_code == 200


async def test_a_held_request_hears_that_its_topic_is_gone(client: httpx.AsyncClient) -> None:
    await register(client)
    await register(client, "broker-b", topics=(), host="10.0.0.2:10911")
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    known = {"if-none-match": etag}
    wait = {"wait_seconds": LONG}
    request = asyncio.create_task(
        client.get("/v1/topics/flights/route", params=wait, headers=known)
    )
    await held(client, 1)

    assert (await client.delete("/v1/brokers/broker-a/0")).status_code == 204

    assert (await request).status_code == 404
    at_once = await client.get("/v1/topics/flights/route", params=wait, headers=known)
    assert at_once.status_code == 404


async def test_after_the_wait_nothing_new_is_304_and_nothing_at_all_404(
    client: httpx.AsyncClient,
) -> None:
    await register(client)
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    wait = {"wait_seconds": 0.01}

    unchanged = await client.get(
        "/v1/topics/flights/route", params=wait, headers={"if-none-match": etag}
    )
    missing = await client.get("/v1/topics/nothing/route", params=wait)

    assert (unchanged.status_code, missing.status_code) == (304, 404)


async def test_a_client_that_does_not_know_the_route_is_never_held(
    client: httpx.AsyncClient,
) -> None:
    await register(client)

    answer = await client.get(
        "/v1/topics/flights/route",
        params={"wait_seconds": LONG},
        headers={"if-none-match": '"older"'},
    )

    assert answer.status_code == 200


async def test_expiry_is_exact_on_every_read_and_wakes_who_waits(
    app: ServiceApp, client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await register(client, expiry_seconds=10)
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    request = watch_of_the_route(client, etag)
    await held(client, 1)

    clock.advance(10)
    assert (await client.get("/v1/topics")).json()["topics"] == ["flights"]

    clock.advance(0.001)
    for path in ("/v1/topics/flights/route", "/v1/brokers", "/v1/clusters", "/v1/topics"):
        answer = await client.get(path)
        assert "broker-a" not in answer.text
        assert '"flights"' not in answer.text
    assert_nobody_knows(await request)


async def test_the_expiry_loop_wakes_who_waits_when_nobody_asks(
    app: ServiceApp, client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await register(client, expiry_seconds=10)
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    request = watch_of_the_route(client, etag)
    await held(client, 1)
    clock.advance(11)

    await app.parts[NameServer].expiry_step()

    assert_nobody_knows(await request)


async def test_held_requests_are_capped_by_name(client: httpx.AsyncClient) -> None:
    wait = {"wait_seconds": LONG}
    requests = [
        asyncio.create_task(client.get("/v1/topics/flights/route", params=wait)) for _ in range(3)
    ]
    await held(client, 3)

    refused = await client.get("/v1/topics/flights/route", params=wait)

    assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
    assert "held_requests_max" in refused.json()["detail"]
    assert refused.headers["retry-after"] == "1"
    await register(client)
    assert {answer.status_code for answer in await asyncio.gather(*requests)} == {200}


async def test_stopping_releases_held_requests(app: ServiceApp, client: httpx.AsyncClient) -> None:
    request = asyncio.create_task(
        client.get("/v1/topics/flights/route", params={"wait_seconds": LONG})
    )
    await held(client, 1)

    app.begin_stop()

    answer = await request
    assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
    assert answer.headers["retry-after"] == "1"
