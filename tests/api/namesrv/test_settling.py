"""A name server that has just started: what it does not know is not said not to exist."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from anyio.lowlevel import checkpoint

from eruca.contract.limits import SETTLE_SECONDS_DEFAULT
from eruca.contract.names import CHECKERS_NAMESPACE, ORDERED_TOPICS_NAMESPACE
from eruca_namesrv.app import create_app
from eruca_namesrv.settings import NamesrvSettings
from support.clocks import ManualClock
from support.services import client_of

pytestmark = pytest.mark.anyio

LISTS = ("/v1/topics", "/v1/brokers", "/v1/clusters")
LONG = 30  # seconds; no test waits that long
SETTLE = {"settle_seconds": SETTLE_SECONDS_DEFAULT}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@asynccontextmanager
async def just_started(clock: ManualClock, **settings: object) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(create_app(NamesrvSettings(**settings), clock)) as client:  # type: ignore[arg-type]
        yield client


async def register(
    client: httpx.AsyncClient, name: str = "broker-a", *topics: str, ordered: int | None = None
) -> None:
    """Register a broker with topics; ordered ones, where their order config's version is given.

    Version 0 is none: they are ordered without an order config.
    """
    order = {"version": ordered, "queues": {name: 4}} if ordered else None
    listed = [
        {
            "topic": topic,
            "read_queue_count": 4,
            "write_queue_count": 4,
            "permission": "rw",
            "ordered": ordered is not None,
            "order_config": order,
        }
        for topic in topics
    ]
    answer = await client.put(f"/v1/brokers/{name}/0", json=told(name) | {"topics": listed})
    assert answer.status_code == 200, answer.text


def told(name: str) -> dict[str, object]:
    host = f"10.0.0.{ord(name[-1])}:10911"
    return {
        "cluster": "c",
        "urls": {"default": f"http://{host}"},
        "store_host": host,
        "data_version": 1,
        "expiry_seconds": 20,
    }


async def held(client: httpx.AsyncClient) -> None:
    """Return once a request is held."""
    while not (await client.get("/v1/status")).json()["held_requests"]:
        await checkpoint()


def assert_settling(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, "name-server-settling")
    assert answer.json()["retryable"] is True
    assert int(answer.headers["retry-after"]) >= 1


async def test_an_unknown_topic_is_503_until_every_broker_could_register_and_404_after(
    clock: ManualClock,
) -> None:
    async with just_started(clock) as client:
        await register(client, "broker-a", "flights")
        clock.advance(SETTLE_SECONDS_DEFAULT - 0.1)
        early = await client.get("/v1/topics/trains/route")
        clock.advance(0.1)
        late = await client.get("/v1/topics/trains/route")

    assert_settling(early)
    assert (late.status_code, late.json()["code"]) == (404, "topic-not-found")


@pytest.mark.parametrize("path", LISTS)
async def test_nothing_is_listed_that_would_look_complete(clock: ManualClock, path: str) -> None:
    async with just_started(clock) as client:
        await register(client, "broker-a", "flights")
        early = await client.get(path)
        clock.advance(SETTLE_SECONDS_DEFAULT)
        late = await client.get(path)

    assert_settling(early)
    assert late.status_code == 200


async def test_a_route_that_is_found_is_told_and_marked_unless_it_must_be_whole(
    clock: ManualClock,
) -> None:
    whole = "/v1/topics/flights/route?require_settled=true"
    async with just_started(clock) as client:
        await register(client, "broker-a", "flights")
        early, early_whole = await client.get("/v1/topics/flights/route"), await client.get(whole)
        status = (await client.get("/v1/status")).json()
        clock.advance(SETTLE_SECONDS_DEFAULT)
        late, late_whole = await client.get("/v1/topics/flights/route"), await client.get(whole)
        settled = (await client.get("/v1/status")).json()

    assert early.status_code == late.status_code == late_whole.status_code == 200
    assert 1 <= int(early.headers["eruca-settling"]) <= SETTLE_SECONDS_DEFAULT
    assert early.headers["etag"] == late.headers["etag"]
    assert "eruca-settling" not in late.headers
    assert_settling(early_whole)
    assert status["settling_seconds"] == SETTLE_SECONDS_DEFAULT
    assert settled["settling_seconds"] == 0


async def test_a_held_request_is_answered_as_soon_as_a_broker_has_registered_the_topic(
    clock: ManualClock,
) -> None:
    async with just_started(clock) as client:
        asking = asyncio.create_task(client.get(f"/v1/topics/flights/route?wait_seconds={LONG}"))
        await held(client)

        await register(client, "broker-a", "flights")

        assert (await asking).status_code == 200


async def test_who_knows_a_route_hears_that_it_is_gone_once_that_is_sure(
    clock: ManualClock,
) -> None:
    async with just_started(clock, expected_brokers="broker-a;broker-b") as client:
        await register(client, "broker-a", "flights")
        asking = asyncio.create_task(
            client.get(
                f"/v1/topics/trains/route?wait_seconds={LONG}", headers={"if-none-match": '"x"'}
            )
        )
        await held(client)

        await register(client, "broker-b", "ships")

        assert (await asking).status_code == 404


async def test_it_has_settled_once_all_brokers_that_there_are_have_told_their_topics(
    clock: ManualClock,
) -> None:
    async with just_started(clock, expected_brokers="broker-a; broker-b") as client:
        await register(client, "broker-a", "flights")
        light = await client.put("/v1/brokers/broker-b/0", json=told("broker-b"))
        assert light.json()["needs_topics"] is True
        assert_settling(await client.get("/v1/topics/trains/route"))

        await register(client, "broker-b")

        assert (await client.get("/v1/topics/trains/route")).status_code == 404
        assert len((await client.get("/v1/brokers")).json()["brokers"]) == 2


async def test_where_there_is_no_broker_nothing_is_waited_for(clock: ManualClock) -> None:
    async with just_started(clock, expected_brokers="") as client:
        assert (await client.get("/v1/brokers")).json() == {"brokers": []}


@pytest.mark.parametrize("names", ["broker a", "broker-a,broker-b", "a/b"])
def test_expected_names_are_checked(names: str) -> None:
    with pytest.raises(ValueError, match="separate several names with ';'"):
        NamesrvSettings(expected_brokers=names)


async def test_services_that_announce_themselves_may_not_have_done_so_yet(
    clock: ManualClock,
) -> None:
    space = f"/v1/kv/{CHECKERS_NAMESPACE}"
    async with just_started(clock, expected_brokers="") as client:
        empty, unknown = await client.get(space), await client.get(f"{space}/checker-1")
        own = await client.get("/v1/kv/OWN")
        await client.put(f"{space}/checker-2", json={"value": "http://10.0.0.1:10921"})
        known = await client.get(space)
        clock.advance(SETTLE_SECONDS_DEFAULT)
        late = await client.get(f"{space}/checker-1")

    assert_settling(empty)
    assert_settling(unknown)
    assert own.json()["entries"] == {}
    assert list(known.json()["entries"]) == ["checker-2"]
    assert late.status_code == 404


async def test_once_the_services_that_there_are_have_announced_themselves_all_are_known(
    clock: ManualClock, tmp_path: Path
) -> None:
    space = f"/v1/kv/{CHECKERS_NAMESPACE}"
    kept = {"kv_file": tmp_path / "kv.json", "expected_services": "query;checker"}
    async with just_started(clock, **kept) as client:
        await client.put(f"{space}/checker-1", json={"value": "http://10.0.0.1:10921"})
        await client.put("/v1/kv/ERUCA_QUERY_SERVICES/query-1", json={"value": "http://10.0.0.1"})
        assert (await client.get(f"{space}/checker-2")).status_code == 404


async def test_the_ordered_topics_of_a_broker_that_is_away_are_not_unknown(
    clock: ManualClock,
) -> None:
    async with just_started(clock, **SETTLE) as client:
        await register(client, "broker-a", "flights")
        await register(client, "broker-b", "orders", ordered=1)
        clock.advance(SETTLE_SECONDS_DEFAULT)
        before = await client.get("/v1/topics/orders/route")
        asking = asyncio.create_task(
            client.get(
                f"/v1/topics/orders/route?wait_seconds={LONG}",
                headers={"if-none-match": before.headers["etag"]},
            )
        )
        await held(client)
        await client.delete("/v1/brokers/broker-b/0")
        route = (await asking).json()
        topics = (await client.get("/v1/topics")).json()["topics"]

    assert (route["queues"], route["brokers"]) == ([], [])
    assert route["order_config"] == "broker-b:4"
    assert topics == ["flights"]


async def _deleted(client: httpx.AsyncClient) -> None:
    await client.delete(f"/v1/kv/{ORDERED_TOPICS_NAMESPACE}/broker-b")


async def _no_longer_ordered(client: httpx.AsyncClient) -> None:
    await register(client, "broker-b")
    await client.delete("/v1/brokers/broker-b/0")


@pytest.mark.parametrize("end", [_deleted, _no_longer_ordered])
@pytest.mark.parametrize(("version", "order"), [(1, "broker-b:4"), (0, "")])
async def test_an_ordered_topic_is_remembered_over_a_restart_until_that_is_over(
    clock: ManualClock,
    tmp_path: Path,
    end: Callable[[httpx.AsyncClient], object],
    version: int,
    order: str,
) -> None:
    kept = {"kv_file": tmp_path / "kv.json", **SETTLE}
    async with just_started(clock, **kept) as client:
        await register(client, "broker-b", "orders", ordered=version)
    async with just_started(clock, **kept) as client:
        clock.advance(SETTLE_SECONDS_DEFAULT)
        await register(client, "broker-c")
        remembered = await client.get("/v1/topics/orders/route")
        await end(client)  # type: ignore[misc]
        forgotten = await client.get("/v1/topics/orders/route")

    assert remembered.json()["order_config"] == order
    assert (remembered.json()["queues"], remembered.json()["brokers"]) == ([], [])
    assert forgotten.status_code == 404


async def test_what_a_live_broker_says_of_a_topic_goes_before_what_one_said_that_is_away(
    clock: ManualClock,
) -> None:
    async with just_started(clock) as client:
        await register(client, "broker-b", "orders", ordered=7)
        await client.delete("/v1/brokers/broker-b/0")
        await register(client, "broker-a", "orders", ordered=1)

        route = (await client.get("/v1/topics/orders/route")).json()

    assert route["order_config"] == "broker-a:4"


async def test_any_order_config_of_brokers_that_are_away_goes_before_none(
    clock: ManualClock,
) -> None:
    async with just_started(clock) as client:
        for name, version in (("broker-b", 1), ("broker-c", 0)):
            await register(client, name, "orders", ordered=version)
        for name in ("broker-b", "broker-c"):
            await client.delete(f"/v1/brokers/{name}/0")
        route = (await client.get("/v1/topics/orders/route")).json()

    assert (route["queues"], route["order_config"]) == ([], "broker-b:4")


async def test_an_entry_that_is_not_a_brokers_says_nothing_of_any_topic(
    clock: ManualClock,
) -> None:
    async with just_started(clock, expected_brokers="") as client:
        await register(client, "broker-a")
        for value in ("x", "[]", '{"orders": 1}', json.dumps({"orders": ["a", "b"]})):
            put = await client.put(
                f"/v1/kv/{ORDERED_TOPICS_NAMESPACE}/broker-b", json={"value": value}
            )
            assert put.status_code == 200
            assert (await client.get("/v1/topics/orders/route")).status_code == 404


HEARSAY = {"broker-b": '{"orders": [1, "broker-b:4"]}', "broker-c": "not an entry"}


async def test_one_that_starts_is_told_of_ordered_topics_by_brokers_that_were_told_of_them(
    clock: ManualClock,
) -> None:
    topics = {"topics": [], "ordered_topics": HEARSAY}
    async with just_started(clock) as client:
        early = await client.put("/v1/brokers/broker-a/0", json=told("broker-a") | topics)
        route = await client.get("/v1/topics/orders/route")
        clock.advance(SETTLE_SECONDS_DEFAULT)
        late = (await client.put("/v1/brokers/broker-a/0", json=told("broker-a"))).json()
        digest = {"ordered_topics_digest": late["ordered_topics_digest"]}
        again = (await client.put("/v1/brokers/broker-a/0", json=told("broker-a") | digest)).json()

    assert early.json()["ordered_topics"] is None
    assert route.json()["order_config"] == "broker-b:4"
    assert late["ordered_topics"] == HEARSAY
    assert again["ordered_topics"] is None
    assert again["ordered_topics_digest"] == late["ordered_topics_digest"]


async def test_hearsay_says_nothing_against_a_broker_that_lives_and_nothing_later(
    clock: ManualClock,
) -> None:
    topics = {"topics": [], "ordered_topics": HEARSAY}
    async with just_started(clock) as client:
        await register(client, "broker-b")
        await client.put("/v1/brokers/broker-a/0", json=told("broker-a") | topics)
        clock.advance(SETTLE_SECONDS_DEFAULT)
        alive = await client.get("/v1/topics/orders/route")
        await client.delete("/v1/brokers/broker-b/0")
        await client.put("/v1/brokers/broker-a/0", json=told("broker-a") | topics)
        late = await client.get("/v1/topics/orders/route")

    assert (alive.status_code, late.status_code) == (404, 404)
