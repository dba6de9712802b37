"""The producer without a network: topics and routes that are missing or change."""

from __future__ import annotations

import asyncio

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import ErucaError
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    live_brokers,
    problem_answer,
    receipt_answer,
    route_of,
)
from support.sending_clients import message, storing
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_a_topic_nobody_knows_is_an_error_that_says_so() -> None:
    async def name_server(request: Request) -> HttpResponse:
        if request.target == "/v1/brokers":
            return json_answer({"brokers": []})
        return problem_answer(eruca.TopicNotFoundError("no topic orders"))

    client = eruca.AsyncClient("http://namesrv", transport=ScriptedTransport(name_server))
    async with client, client.producer() as producer:
        with pytest.raises(eruca.TopicNotFoundError, match="eruca topic create"):
            await producer.send(message())


async def test_a_name_server_that_has_just_started_keeps_no_topic_from_being_created() -> None:
    async def name_server(request: Request) -> HttpResponse:
        if request.target != "/v1/brokers":
            return problem_answer(eruca.TopicNotFoundError("no topic orders"))
        if request.url == ignorant:
            return json_answer(live_brokers())
        return json_answer(live_brokers("a"))

    client = eruca.AsyncClient(
        "http://one;http://another",
        hot_transport=ScriptedTransport(storing),
        transport=ScriptedTransport(name_server),
    )
    ignorant = client.context.name_servers.current_url
    async with client, client.producer() as producer:
        result = await producer.send(message())

    assert result.queue.broker_name == "a"


@pytest.mark.parametrize("refusal", [eruca.TopicNotFoundError, eruca.PermissionDeniedError])
@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_a_route_that_has_changed_is_fetched_when_a_broker_refuses(
    refusal: type[ErucaError], *, is_idempotent: bool
) -> None:
    """The topic moved from broker a to broker b, which the client does not know yet."""
    fetches = 0

    async def name_server(request: Request) -> HttpResponse:
        nonlocal fetches
        if "wait_seconds" in request.target:
            await asyncio.Event().wait()
        fetches += 1
        return json_answer(route_of("orders", "a" if fetches == 1 else "b"), etag=f'"{fetches}"')

    async def broker(request: Request) -> HttpResponse:
        if request.url == "http://a":
            return problem_answer(refusal("moved"))
        return receipt_answer(request)

    client = eruca.AsyncClient(
        "http://namesrv",
        hot_transport=ScriptedTransport(broker),
        transport=ScriptedTransport(name_server),
    )
    async with client, client.producer(idempotent=is_idempotent) as producer:
        result = await producer.send(message())

    assert result.queue.broker_name == "b"


@pytest.mark.parametrize("loss", [eruca.TransportError, eruca.TimeoutExpiredError])
async def test_what_may_be_stored_is_not_said_to_have_no_route(loss: type[ErucaError]) -> None:
    """The one broker stores, and leaves the routes; its answer is lost."""
    has_left = asyncio.Event()

    def is_known_to_have_left() -> bool:
        view = client.context.routes.cached_publish_view("orders")
        return view is not None and not view.queues

    async def name_server(request: Request) -> HttpResponse:
        if "wait_seconds" in request.target:
            await (asyncio.Event() if has_left.is_set() else has_left).wait()
        names = () if has_left.is_set() else ("a",)
        return json_answer(route_of("orders", *names), etag=f'"{len(names)}"')

    async def broker(_: Request) -> HttpResponse:
        has_left.set()
        await until(is_known_to_have_left)
        raise loss("cut")

    client = eruca.AsyncClient(
        "http://namesrv",
        hot_transport=ScriptedTransport(broker),
        transport=ScriptedTransport(name_server),
    )
    async with client, client.producer() as producer:
        with pytest.raises(eruca.SendFailedError) as failed:
            await producer.send(message())

    kinds = [type(error) for _, error in failed.value.attempts]
    assert kinds == [loss, eruca.NoRouteError, eruca.NoRouteError]


async def test_a_route_that_does_not_come_is_not_awaited_beyond_the_deadline() -> None:
    has_told = False

    async def name_server(_: Request) -> HttpResponse:
        nonlocal has_told
        if has_told:
            await asyncio.Event().wait()
        has_told = True
        return json_answer(route_of("orders", "a"), etag='"1"')

    async def broker(_: Request) -> HttpResponse:
        return problem_answer(eruca.TopicNotFoundError("moved"))

    client = eruca.AsyncClient(
        "http://namesrv",
        hot_transport=ScriptedTransport(broker),
        transport=ScriptedTransport(name_server),
        timeout_seconds=600,
    )
    async with client, client.producer(send_timeout_seconds=0.05) as producer:
        with pytest.raises(eruca.SendFailedError, match="moved"):
            await producer.send(message())


@pytest.mark.parametrize("sharding_key", [None, "k"])
@pytest.mark.parametrize("sends_many", [False, True])
async def test_no_name_server_at_all_is_an_error_within_the_deadline(
    sharding_key: str | None, *, sends_many: bool
) -> None:
    async def silent(_: Request) -> HttpResponse:
        await asyncio.Event().wait()
        raise AssertionError

    client = eruca.AsyncClient(
        "http://namesrv", transport=ScriptedTransport(silent), timeout_seconds=600
    )
    sent = eruca.Message("orders", "x", sharding_key=sharding_key)
    async with client, client.producer(send_timeout_seconds=0.05) as producer:
        with pytest.raises(eruca.TimeoutExpiredError, match="route of orders"):
            await (producer.send_many([sent]) if sends_many else producer.send(sent))
