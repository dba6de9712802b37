"""Routes: fetched once for all callers, cached, and refreshed in the background."""

from __future__ import annotations

import asyncio

import pytest

import eruca
from support.scripted_routes import brokers_of, plain, routes_of
from support.scripted_transport import Request, ScriptedTransport
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_those_who_ask_at_the_same_time_share_one_request() -> None:
    async with routes_of() as (routes, server, transport):
        server.put("orders", "a")

        views = await asyncio.gather(*(routes.publish_view("orders") for _ in range(10)))

        assert len(plain(transport)) == 1
        assert all(view is views[0] for view in views)


async def test_a_cached_route_costs_no_request() -> None:
    async with routes_of() as (routes, server, transport):
        server.put("orders", "a", "b")
        assert routes.cached_publish_view("orders") is None

        view = await routes.publish_view("orders")

        assert await routes.publish_view("orders") is view
        assert routes.cached_publish_view("orders") is view
        assert (await routes.subscribe_view("orders")).queues == view.queues
        assert routes.cached_subscribe_view("orders") is not None
        assert len(plain(transport)) == 1


async def test_one_who_gives_up_does_not_take_the_request_from_the_others() -> None:
    async with routes_of() as (routes, server, _):
        server.put("orders", "a")
        impatient = asyncio.create_task(routes.publish_view("orders"))
        patient = asyncio.create_task(routes.publish_view("orders"))
        await asyncio.sleep(0)
        impatient.cancel()

        assert (await patient).topic == "orders"


async def test_a_refresh_asks_with_the_etag() -> None:
    async with routes_of() as (routes, server, transport):
        server.put("orders", "a")
        view = await routes.publish_view("orders")

        await routes.refresh("orders")

        assert plain(transport)[1].headers["if-none-match"].startswith('"')
        assert routes.cached_publish_view("orders") is view


async def test_a_refresh_that_fails_leaves_the_route_as_it_was() -> None:
    """A name server that was restarted knows nothing yet; the brokers are where they were."""
    async with routes_of("http://n1", "http://n2") as (routes, server, _):
        server.put("orders", "a")
        view = await routes.publish_view("orders")

        server.lose_everything()
        await routes.refresh("orders")

        assert routes.cached_publish_view("orders") is view


async def test_a_settling_name_server_does_not_take_brokers_out_of_a_route() -> None:
    async with routes_of() as (routes, server, _):
        server.put("orders", "a", "b")
        view = await routes.publish_view("orders")

        server.settling = 30
        server.put("orders", "a")
        await routes.refresh("orders")
        assert routes.cached_publish_view("orders") is view

        server.put("orders", "a", "b", "c")
        await routes.refresh("orders")
        assert brokers_of(routes, "orders") == {"a", "b", "c"}

        server.settling = None
        server.put("orders", "a")
        await routes.refresh("orders")
        assert brokers_of(routes, "orders") == {"a"}


async def test_refreshing_soon_is_done_in_the_background_and_not_too_often() -> None:
    async with routes_of() as (routes, server, transport):
        server.holds = False
        server.put("orders", "a")
        await routes.publish_view("orders")
        for _ in range(100):
            routes.refresh_soon("orders")
            await asyncio.sleep(0)
        server.put("orders", "a", "b")

        await until(lambda: "b" in brokers_of(routes, "orders"))

        assert len(plain(transport)) == 2


async def test_waiting_for_what_was_done_ends_when_the_route_shows_it() -> None:
    async with routes_of() as (routes, server, _):
        server.put("orders", "a")
        waiting = asyncio.create_task(routes.wait_until("orders", lambda r: len(r.queues) == 2))
        await until(lambda: routes.cached_publish_view("orders"))
        assert not waiting.done()

        server.put("orders", "a", "b")

        await waiting


async def test_closed_routes_answer_nobody() -> None:
    async with routes_of() as (routes, server, _):
        server.put("orders", "a")
        asking = asyncio.create_task(routes.publish_view("orders"))
        await asyncio.sleep(0)
        await routes.close()

        with pytest.raises(eruca.ClosedError):
            await asking
        with pytest.raises(eruca.ClosedError):
            await routes.publish_view("orders")


async def test_a_route_that_must_be_whole_is_waited_for() -> None:
    async with routes_of() as (routes, server, transport):
        server.put("orders", "a")
        server.settling = 30
        asking = asyncio.create_task(routes.route("orders"))
        await until(lambda: len(plain(transport)) >= 2)
        assert not asking.done()

        server.put("orders", "a", "b")
        server.settling = None

        assert {broker.broker_name for broker in (await asking).brokers} == {"a", "b"}


async def test_a_complete_route_costs_no_request_while_it_is_watched() -> None:
    async with routes_of() as (routes, server, transport):
        server.put("orders", "a")
        await routes.complete_view("orders")
        await until(lambda: watches(transport))
        await routes.complete_view("orders")  # complete at a time at which it is watched
        asked = len(plain(transport))

        view = await routes.complete_view("orders")

        assert len(plain(transport)) == asked
        assert view is routes.cached_publish_view("orders")
        server.put("orders", "a", "b")
        await until(lambda: brokers_of(routes, "orders") == {"a", "b"})
        assert (await routes.complete_view("orders")).urls.keys() == {"a", "b"}


async def test_a_route_that_is_not_watched_is_fetched_whenever_it_must_be_complete() -> None:
    async with routes_of() as (routes, server, transport):
        server.holds = False
        server.put("orders", "a")
        for asked in range(1, 4):
            await routes.complete_view("orders")
            assert len(plain(transport)) == asked


async def test_after_a_break_of_its_watch_a_route_must_be_complete_anew() -> None:
    """The name server restarts, and does not know yet who else has the topic meanwhile."""
    async with routes_of() as (routes, server, transport):
        server.put("orders", "a")
        await routes.complete_view("orders")
        await until(lambda: watches(transport))
        await routes.complete_view("orders")
        server.go_down()
        await until(lambda: len(watches(transport)) >= 2)
        server.is_down, server.settling = False, 30
        await until(lambda: len(watches(transport)) >= 3)

        asking = asyncio.create_task(routes.complete_view("orders"))
        asked = len(plain(transport))
        await until(lambda: len(plain(transport)) > asked)
        assert not asking.done()
        server.put("orders", "a", "b")
        server.settling = None

        assert (await asking).urls.keys() == {"a", "b"}


def watches(transport: ScriptedTransport) -> list[Request]:
    return [request for request in transport.requests if "wait_seconds" in request.target]
