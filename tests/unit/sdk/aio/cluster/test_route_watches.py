"""Watched routes: changes are known at once, and name servers are not pressed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from eruca.aio.cluster.name_servers import NameServers
from eruca.aio.cluster.route_watches import WATCHES_MAX
from eruca.aio.cluster.routes import Routes
from eruca.aio.http.transport import HttpResponse
from eruca.core.routing.master_book import MasterBook
from support.scripted_routes import brokers_of, plain, routes_of
from support.scripted_transport import Request, ScriptedTransport, json_answer, route_of
from support.waiting import until

pytestmark = pytest.mark.anyio


def watches(transport: ScriptedTransport) -> list[Request]:
    return [request for request in transport.requests if "wait_seconds" in request.target]


async def test_a_change_is_known_at_once_and_told_to_who_listens() -> None:
    async with routes_of() as (routes, server, transport):
        server.put("orders", "a")
        await routes.publish_view("orders")
        await until(lambda: watches(transport))
        heard: list[str] = []
        stop = routes.on_change(heard.append)

        server.put("orders", "a", "b")
        await until(lambda: heard)

        assert brokers_of(routes, "orders") == {"a", "b"}
        stop()
        server.put("orders", "c")
        await until(lambda: "c" in brokers_of(routes, "orders"))
        assert heard == ["orders"]


async def test_only_so_many_routes_are_watched() -> None:
    async with routes_of() as (routes, server, transport):
        topics = [f"topic-{n}" for n in range(WATCHES_MAX + 5)]
        for topic in topics:
            server.put(topic, "a")
            await routes.publish_view(topic)
        await until(lambda: len(watches(transport)) >= WATCHES_MAX)

        assert len(watches(transport)) == WATCHES_MAX


async def test_a_name_server_that_holds_no_more_requests_is_not_pressed() -> None:
    async with routes_of() as (routes, server, transport):
        server.holds = False
        server.put("orders", "a")
        await routes.publish_view("orders")
        await until(lambda: watches(transport))
        for _ in range(20):
            await asyncio.sleep(0)

        assert len(watches(transport)) == 1


@pytest.mark.parametrize("status", [200, 304])
async def test_one_that_holds_no_request_is_asked_again_only_after_a_while(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a cache in between may do."""
    monkeypatch.setattr("eruca.aio.cluster.route_watches.WATCH_PAUSE_SECONDS", 60.0)

    async def answer(request: Request) -> HttpResponse:
        if "wait_seconds" in request.target and status == 304:
            return HttpResponse(304, {}, b"")
        return json_answer(route_of("orders", "a"), etag='"1"')

    transport = ScriptedTransport(answer)
    routes = Routes(
        NameServers(["http://n1"], transport), MasterBook(), network="default", timeout=1
    )
    await routes.publish_view("orders")
    await until(lambda: watches(transport))
    for _ in range(20):
        await asyncio.sleep(0)

    assert len(watches(transport)) == 1
    await routes.close()


async def test_a_route_that_made_room_while_it_was_watched_can_be_watched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eruca.aio.cluster.routes.TOPICS_MAX", 1)
    is_held_long_enough = asyncio.Event()

    async def answer(request: Request) -> HttpResponse:
        if "wait_seconds" in request.target:
            await is_held_long_enough.wait()
            return HttpResponse(304, {}, b"")
        return json_answer(route_of(request.target.split("/")[3], "a"), etag='"1"')

    transport = ScriptedTransport(answer)
    routes = Routes(
        NameServers(["http://n1"], transport), MasterBook(), network="default", timeout=1
    )
    await routes.publish_view("orders")
    await until(lambda: watches(transport))
    await routes.publish_view("flights")
    assert routes.cached_publish_view("orders") is None
    is_held_long_enough.set()
    for _ in range(20):
        await asyncio.sleep(0)

    await routes.publish_view("orders")

    await until(lambda: sum("orders" in request.target for request in watches(transport)) == 2)
    await routes.close()


async def test_a_name_server_is_asked_again_once_it_has_settled_whatever_made_it_be_asked_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eruca.aio.cluster.routes.REFRESH_SECONDS", 1_000_000.0)
    async with routes_of() as (routes, server, transport):
        server.holds = False
        server.put("orders", "a", "b")
        await routes.publish_view("orders")

        server.settling = 1
        server.put("orders", "a")
        routes.refresh_soon("orders")
        await until(lambda: len(plain(transport)) == 2)
        assert brokers_of(routes, "orders") == {"a", "b"}
        server.settling = None

        await until(lambda: brokers_of(routes, "orders") == {"a"})


async def test_what_a_settling_name_server_comes_to_know_is_known_at_once() -> None:
    async with routes_of() as (routes, server, transport):
        server.put("orders", "a", "b")
        view = await routes.publish_view("orders")
        await until(lambda: len(watches(transport)) == 1)
        server.settling = 30

        server.put("orders", "a")
        await until(lambda: len(watches(transport)) == 2)
        assert routes.cached_publish_view("orders") is view
        server.put("orders", "a", "b", "c")

        await until(lambda: brokers_of(routes, "orders") == {"a", "b", "c"})


async def test_a_broker_that_comes_back_after_the_name_server_is_known_again() -> None:
    """The name server restarts: it breaks what it held, and knows nothing for a moment."""
    async with routes_of() as (routes, server, transport):
        server.put("orders", "a", "b")
        await routes.publish_view("orders")
        await until(lambda: len(watches(transport)) == 1)

        server.lose_everything()
        server.go_down()
        await until(lambda: len(watches(transport)) >= 2)
        server.is_down = False
        server.put("orders", "a", "b", "c")

        await until(lambda: "c" in brokers_of(routes, "orders"))


async def test_a_watch_that_rests_goes_on_when_a_name_server_answers_something_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("eruca.aio.cluster.route_watches._rest_seconds", lambda _failures: 3_600.0)
    async with routes_of() as (routes, server, transport):
        server.put("orders", "a")
        await routes.publish_view("orders")
        await until(lambda: len(watches(transport)) == 1)
        server.go_down()
        await until(lambda: "the watch of the route of orders failed" in caplog.text)

        server.is_down = False
        await routes.refresh("orders")

        await until(lambda: len(watches(transport)) == 2)


async def test_a_watch_does_not_stay_with_a_name_server_that_others_turned_away_from() -> None:
    """It holds the request for ever, as one does whose packets are lost."""
    async with routes_of("http://n1", "http://n2") as (routes, server, transport):
        server.put("orders", "a")
        await routes.publish_view("orders")
        await until(lambda: len(watches(transport)) == 1)
        lost = watches(transport)[0].url

        server.unreachable = lost
        await routes.refresh("orders")

        await until(lambda: watches(transport)[-1].url != lost)
