"""Routes: fetched once for all who ask, kept fresh, and kept when the news is worse than them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import eruca
from eruca.aio.cluster.name_servers import NameServers
from eruca.aio.cluster.route_watches import WATCHES_MAX
from eruca.aio.cluster.routes import Routes
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import OverloadedError, TopicNotFoundError, TransportError
from eruca.core.routing.master_book import MasterBook
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    live_brokers,
    problem_answer,
    route_of,
)
from support.waiting import until

pytestmark = pytest.mark.anyio


class NameServer:
    """One that holds requests, and several of which may disagree."""

    def __init__(self, urls: list[str]) -> None:
        self.tables: dict[str, dict[str, dict[str, Any]]] = {url: {} for url in urls}
        self.brokers: list[str] = []
        self.holds = True
        self.is_down = False
        self.unreachable: str | None = None  # what is asked there from now on fails
        self.settling: int | None = None  # seconds, as one that has just started says
        self.changed = asyncio.Event()

    def put(self, topic: str, *broker_names: str, at: str | None = None) -> None:
        for url in self.tables if at is None else [at]:
            self.tables[url][topic] = route_of(topic, *broker_names)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def go_down(self) -> None:
        self.is_down = True
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def lose_everything(self) -> None:
        for table in self.tables.values():
            table.clear()

    async def __call__(self, request: Request) -> HttpResponse:
        if request.target == "/v1/brokers":
            return self.broker_list()
        topic = request.target.split("/")[3]
        if self.settling is not None and "require_settled" in request.target:
            return problem_answer(eruca.NameServerSettlingError("it has just started"))
        is_held = "wait_seconds" in request.target
        if is_held and not self.holds:
            return problem_answer(OverloadedError("too many held requests"))
        while True:
            if self.is_down or request.url == self.unreachable:
                raise TransportError(f"{request.url} is down")
            route = self.tables[request.url].get(topic)
            etag = f'"{hash(str(route))}"'
            if route is not None and request.headers.get("if-none-match") != etag:
                answer = json_answer(route, etag=etag)
                if self.settling is not None:
                    answer.headers["eruca-settling"] = str(self.settling)  # type: ignore[index]
                return answer
            if not is_held:
                break
            await self.changed.wait()
        if route is None and self.settling is not None:
            return problem_answer(eruca.NameServerSettlingError("it has just started"))
        if route is None:
            return problem_answer(eruca.TopicNotFoundError(f"no topic {topic}"))
        return HttpResponse(304, {"etag": etag}, b"")

    def broker_list(self) -> HttpResponse:
        return json_answer(live_brokers(*self.brokers))


@asynccontextmanager
async def routes_of(
    *urls: str, timeout: float = 5.0
) -> AsyncIterator[tuple[Routes, NameServer, ScriptedTransport]]:
    chosen = list(urls) or ["http://n1"]
    server = NameServer(chosen)
    transport = ScriptedTransport(server)
    routes = Routes(
        NameServers(chosen, transport), MasterBook(), network="default", timeout=timeout
    )
    yield routes, server, transport
    await routes.close()


def plain(transport: ScriptedTransport) -> list[Request]:
    return [request for request in transport.requests if "wait_seconds" not in request.target]


def watches(transport: ScriptedTransport) -> list[Request]:
    return [request for request in transport.requests if "wait_seconds" in request.target]


def brokers_of(routes: Routes, topic: str) -> set[str]:
    view = routes.cached_publish_view(topic)
    return set() if view is None else set(view.urls)


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


async def test_a_topic_that_was_just_created_is_looked_for_until_a_name_server_knows_it() -> None:
    async with routes_of() as (routes, server, transport):
        looking = asyncio.create_task(routes.subscribe_view_of_new("orders"))
        await until(lambda: transport.requests)

        server.put("orders", "a")

        assert [queue.broker_name for queue in (await looking).queues] == ["a", "a"]


async def test_a_topic_that_does_not_come_is_not_found() -> None:
    async with routes_of() as (routes, _, transport):
        with pytest.raises(TopicNotFoundError):
            await routes.subscribe_view_of_new("orders")

        assert len(transport.requests) > 1


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


async def test_not_found_counts_only_when_all_name_servers_say_it() -> None:
    """One of them has just started, and no broker has registered with it yet."""
    for knowing in ("http://n1", "http://n2", "http://n3"):
        async with routes_of("http://n1", "http://n2", "http://n3") as (routes, server, _):
            server.put("orders", "a", at=knowing)

            assert (await routes.publish_view("orders")).topic == "orders"


async def test_a_topic_nobody_knows_is_not_found() -> None:
    async with routes_of("http://n1", "http://n2") as (routes, _, _):
        for ask in (routes.publish_view, routes.subscribe_view, routes.route):
            with pytest.raises(eruca.TopicNotFoundError):
                await ask("orders")


async def test_an_unknown_topic_may_be_sent_to_any_broker_which_may_create_it() -> None:
    async with routes_of() as (routes, server, transport):
        server.brokers = ["a", "b"]

        view = await routes.publish_view("orders")
        again = await routes.publish_view("orders")

        assert {queue.broker_name for queue in view.queues} == {"a", "b"}
        assert len(view.queues) == 8
        assert again is view
        assert sum(request.target == "/v1/brokers" for request in transport.requests) == 1
        with pytest.raises(eruca.TopicNotFoundError):
            await routes.subscribe_view("orders")


async def test_a_topic_without_a_queue_to_write_to_says_so() -> None:
    async with routes_of() as (routes, server, _):
        server.put("orders")

        with pytest.raises(eruca.NoRouteError, match="accepts messages"):
            await routes.publish_view("orders")
        assert (await routes.subscribe_view("orders")).queues == ()


@pytest.mark.parametrize("body", [b"", b"[]", b'{"topic": 1}', b"\xff"])
async def test_a_route_that_cannot_be_read_is_a_transport_error(body: bytes) -> None:
    async def answer(_: Request) -> HttpResponse:
        return HttpResponse(200, {}, body)

    routes = Routes(
        NameServers(["http://n1"], ScriptedTransport(answer)),
        MasterBook(),
        network="default",
        timeout=1,
    )
    with pytest.raises(eruca.TransportError, match="route of orders"):
        await routes.publish_view("orders")
    await routes.close()


async def test_a_list_of_brokers_that_cannot_be_read_is_a_transport_error() -> None:
    async def answer(request: Request) -> HttpResponse:
        if request.target == "/v1/brokers":
            return HttpResponse(200, {}, b"<html>")
        return problem_answer(TopicNotFoundError("there is none"))

    routes = Routes(
        NameServers(["http://n1"], ScriptedTransport(answer)),
        MasterBook(),
        network="default",
        timeout=1,
    )
    with pytest.raises(eruca.TransportError, match="list of brokers"):
        await routes.publish_view("orders")
    await routes.close()


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


async def test_nothing_is_kept_of_topics_that_have_no_route(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A program that sends to names it makes up has each looked for again."""
    caplog.set_level(logging.DEBUG, logger="eruca")
    async with routes_of() as (routes, _, transport):
        await routes.refresh("made-up")

        assert len(transport.requests) == 1
        assert caplog.messages == []  # there is no route that stays as it was


async def test_a_topic_that_is_not_known_yet_is_never_taken_for_a_new_one() -> None:
    async with routes_of(timeout=0.01) as (routes, server, transport):
        server.brokers = ["a"]
        server.settling = 30

        with pytest.raises(eruca.NameServerSettlingError):
            await routes.publish_view("orders")
        assert "/v1/brokers" not in [request.target for request in transport.requests]

        server.settling = None
        assert {queue.broker_name for queue in (await routes.publish_view("orders")).queues} == {
            "a"
        }


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


async def test_a_consumer_that_waits_for_topics_waits_for_those_not_known_yet() -> None:
    async with routes_of(timeout=0.01) as (routes, server, _):
        server.settling = 30

        assert await routes.consumers_view("orders", waits=True) is None
        with pytest.raises(eruca.NameServerSettlingError):
            await routes.consumers_view("orders", waits=False)


async def test_keys_of_an_ordered_topic_whose_brokers_are_away_are_missed_and_no_other_is() -> None:
    async with routes_of() as (routes, server, _):
        server.put("orders")
        server.tables["http://n1"]["orders"]["order_config"] = "b:2"
        server.brokers = ["a"]

        view = await routes.publish_view("orders")

        assert view.queues == ()
        assert [queue.broker_name for queue in view.key_queues] == ["b", "b"]
        assert all(view.is_missed(queue) for queue in view.key_queues)


async def test_what_is_remembered_of_brokers_that_are_away_takes_no_routes_place() -> None:
    async with routes_of() as (routes, server, _):
        server.put("orders", "b")
        view = await routes.publish_view("orders")

        server.tables["http://n1"]["orders"] = route_of("orders") | {"order_config": "b:4"}
        await routes.refresh("orders")

        assert routes.cached_publish_view("orders") is view
