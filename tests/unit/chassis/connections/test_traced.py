"""Exchanges with spans: each step runs for its own request, in any request's callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from eruca_chassis.connections.answer_queue import AnswerQueue
from eruca_chassis.connections.connections import ServiceProtocol
from eruca_chassis.connections.exchange import AnswerHead, Exchange, Found, RequestHead
from eruca_chassis.connections.hot import HotRoute
from eruca_chassis.connections.traced import TracedExchange, traced_exchange
from eruca_chassis.metrics import CLIENT_GONE_STATUS
from eruca_chassis.spans.otel import OtelTracing

pytestmark = pytest.mark.anyio

OK = AnswerHead(200)
SAMPLED = b"00-%032x-b7ad6b7169203331-01"


class Carrier:
    connection = None

    def answered(self, exchange: Exchange) -> None:
        pass


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtelTracing]:
    """Tracing whose collector is away; nothing here waits for it."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    tracing = OtelTracing("eruca-chassis")
    yield tracing
    # Its thread would go on trying, and take the pauses from the module random. Hypothesis then
    # believes that a later test does.
    tracing._exporter.shutdown()  # type: ignore[no-untyped-call]
    tracing._processor.shutdown()  # type: ignore[no-untyped-call]


def made(
    tracing: OtelTracing,
    handle: Callable[[Exchange], None],
    headers: Mapping[bytes, bytes] | None = None,
) -> TracedExchange:
    route = HotRoute("POST", "/v1/things", handle)
    head = RequestHead(Found(route, {}), "POST", b"/v1/things", headers or {})
    exchange = traced_exchange(tracing)(Carrier(), head, None)
    assert isinstance(exchange, TracedExchange)
    return exchange


def trace_of(tracing: OtelTracing) -> int | None:
    span = tracing.current()
    return None if span is None else span.context.trace_id


async def test_a_step_runs_for_its_own_request(tracing: OtelTracing) -> None:
    found: list[tuple[str, int | None]] = []
    ended = asyncio.Event()

    def note(what: str) -> None:
        found.append((what, trace_of(tracing)))

    def wait(_: Exchange) -> None:
        note("first waits")

    first = made(tracing, wait, {b"traceparent": SAMPLED % 1})
    unsampled = made(tracing, wait)

    async def steps() -> tuple[AnswerHead]:
        await asyncio.sleep(0)
        note("second's task")
        ended.set()
        return (OK,)

    def go_on_with_others(exchange: Exchange) -> None:
        note("second handles")
        first.resume(note, "first's step")
        unsampled.resume(note, "a step of no trace")
        note("second goes on")
        exchange.go_on(steps())

    for exchange in (first, made(tracing, go_on_with_others, {b"traceparent": SAMPLED % 2})):
        exchange.begin()
        exchange.complete()
    await ended.wait()

    assert found == [
        ("first waits", 1),
        ("second handles", 2),
        ("first's step", 1),
        ("a step of no trace", None),
        ("second goes on", 2),
        ("second's task", 2),
    ]
    assert trace_of(tracing) is None


async def test_a_request_that_has_ended_is_no_origin(tracing: OtelTracing) -> None:
    later: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def answer(exchange: Exchange) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: later.set_result(trace_of(tracing)))  # in the request's context
        exchange.answer(OK)

    exchange = made(tracing, answer, {b"traceparent": SAMPLED % 3})
    exchange.begin()
    exchange.complete()
    exchange.end_span()

    assert await later is None


async def test_a_lost_client_is_an_error_in_its_span(tracing: OtelTracing) -> None:
    exchange = made(tracing, lambda _: None, {b"traceparent": SAMPLED % 4})
    exchange.begin()
    exchange.lose()
    exchange.end_span()

    span: Any = exchange._span
    attributes = span.span.attributes
    assert attributes["http.response.status_code"] == CLIENT_GONE_STATUS
    assert attributes["error.type"] == str(CLIENT_GONE_STATUS)
    assert not span.span.status.is_ok


@pytest.mark.parametrize("flags", [b"00", b"02", b"fe"])
def test_a_trace_that_is_not_sampled_has_no_span(tracing: OtelTracing, flags: bytes) -> None:
    assert tracing.begin("GET", {b"traceparent": (SAMPLED % 5)[:-2] + flags}) is None


@pytest.mark.parametrize("flags", [b"01", b"03", b"ff"])
def test_a_trace_that_is_sampled_has_a_span(tracing: OtelTracing, flags: bytes) -> None:
    assert tracing.begin("GET", {b"traceparent": (SAMPLED % 6)[:-2] + flags}) is not None


def test_without_traces_connections_have_the_plain_classes() -> None:
    assert ServiceProtocol.exchange_class is Exchange
    assert ServiceProtocol.queue_class is AnswerQueue
