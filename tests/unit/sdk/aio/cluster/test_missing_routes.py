"""Topics without a route: not found only if all name servers say it, or not known yet."""

from __future__ import annotations

import asyncio
import logging

import pytest

import eruca
from eruca.aio.cluster.name_servers import NameServers
from eruca.aio.cluster.routes import Routes
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import TopicNotFoundError
from eruca.core.routing.master_book import MasterBook
from support.scripted_routes import routes_of
from support.scripted_transport import Request, ScriptedTransport, problem_answer, route_of
from support.waiting import until

pytestmark = pytest.mark.anyio


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
