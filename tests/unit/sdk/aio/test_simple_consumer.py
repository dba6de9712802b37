"""The simple consumer without a network: brokers that ask for patience."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import NotReadyError, OverloadedError, RequestError, TransportError
from support.patience import PATIENCE_SECONDS
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    problem_answer,
    route_of,
)

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def receiving(
    broker: Callable[[Request], Awaitable[HttpResponse]], *broker_names: str
) -> AsyncIterator[tuple[eruca.AsyncSimpleConsumer, list[Request]]]:
    """Make a consumer of the topic ``orders``, and the list of what brokers were asked."""
    deliveries = ScriptedTransport(broker)

    async def name_server(request: Request) -> HttpResponse:
        if "wait_seconds" in request.target:
            await asyncio.Event().wait()
        return json_answer(route_of("orders", *broker_names), etag='"1"')

    async with (
        eruca.AsyncClient(
            "http://namesrv", hot_transport=deliveries, transport=ScriptedTransport(name_server)
        ) as client,
        client.simple_consumer("billing", "orders") as consumer,
    ):
        yield consumer, deliveries.requests


async def test_brokers_that_ask_for_patience_are_not_asked_again_before_their_time() -> None:
    async def broker(_: Request) -> HttpResponse:
        return problem_answer(OverloadedError("too much to do", retry_after_seconds=3_600))

    async with receiving(broker, "a", "b") as (consumer, requests):
        with pytest.raises(OverloadedError):
            await consumer.receive(wait_seconds=0.7)

    assert sorted(request.url for request in requests) == ["http://a", "http://b"]


async def test_a_broker_that_is_ready_sooner_is_asked_alone() -> None:
    asked: list[str] = []

    async def broker(request: Request) -> HttpResponse:
        asked.append(request.url)
        if asked.count("http://a") == 2:
            return problem_answer(RequestError("no such group"))
        seconds = 0.3 if request.url == "http://a" else 3_600
        return problem_answer(NotReadyError("starting", retry_after_seconds=seconds))

    async with receiving(broker, "a", "b") as (consumer, _):
        with pytest.raises(RequestError):
            await consumer.receive(wait_seconds=PATIENCE_SECONDS)

    assert sorted(asked) == ["http://a", "http://a", "http://b"]


@pytest.mark.parametrize(
    "body", [b"{", b'{"deliveries": [{"handle": "\xff"}]}', b"[" * 100_000], ids=len
)
async def test_a_broker_whose_answer_cannot_be_read_is_passed_over_as_one_that_failed(
    body: bytes,
) -> None:
    async def broker(_: Request) -> HttpResponse:
        return HttpResponse(200, {"content-type": "application/json"}, body)

    async with receiving(broker, "a", "b") as (consumer, requests):
        with pytest.raises(TransportError, match="is invalid"):
            await consumer.receive(wait_seconds=0)

    assert {request.url for request in requests} == {"http://a", "http://b"}
