"""Requests that an endpoint gathers are answered as each would be alone, whatever comes between."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import pytest
from prometheus_client import CollectorRegistry

from eruca.contract.errors import DiskFullError
from eruca_chassis.admission.budget import RESERVE_SIZE, Budget
from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.app import ServiceApp
from eruca_chassis.connections.connections import ServiceProtocol
from eruca_chassis.connections.exchange import AnswerHead, BodyLimit, Exchange, RequestHead
from eruca_chassis.connections.gathered import (
    Gathered,
    GatheredRequest,
    Gathers,
    Taker,
    answer_together,
    fail_together,
    give_back_together,
)
from eruca_chassis.routes.hot_router import HotEndpoint, HotRouter
from eruca_chassis.running.serving import Server
from support.exchanges import MIB, answer_of, settings
from support.services import raw_connection, serving
from support.waiting import until

pytestmark = pytest.mark.anyio

OK: Final = AnswerHead(200, (b"x-percent", b"100%"))
SEND: Final = b"POST /v1/gather HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%b\r\n%b"
NAMED: Final = b"X-Request-Id: named\r\n"  # such heads are not cached
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def said(body: bytes, header: bytes = b"") -> bytes:
    return SEND % (len(body), header, body)


class Gatherer:
    """A service that gathers requests until the test lets them be answered."""

    def __init__(self) -> None:
        self.budget = Budget("gathered_max", MIB)
        self.requests: list[tuple[GatheredRequest, bytes]] = []
        self.alone: list[bytes] = []  # bodies that came as exchanges
        gatherer = self

        class Gather(HotEndpoint):
            """Gathers bodies that begin with a plus sign."""

            @staticmethod
            def read(head: RequestHead) -> None:
                """Find nothing."""

            def admit(self, exchange: Exchange) -> None:
                exchange.expect_body(BodyLimit(gatherer.budget, MIB, "said_size_max"))

            def gathers(self, head: RequestHead) -> Gathers | None:
                return Gathers(b"+", gatherer.budget, gatherer.taker)

            def handle(self, exchange: Exchange) -> None:
                gatherer.say(exchange)

        router = HotRouter()
        router.hot("POST", "/v1/gather", needs=PUBLIC)(Gather)
        self.app = ServiceApp(
            title="Gatherer",
            summary="",
            description="",
            version="1",
            lifespan=self._lifespan,
            routers=[router],
        )
        self.app.stop_hooks.append(self.answer)

    @asynccontextmanager
    async def _lifespan(self, app: ServiceApp) -> AsyncIterator[None]:
        app.open_routes()
        app.readiness.ready()
        yield

    def taker(self, client: tuple[str, int] | None, head_size: int) -> Taker | None:
        assert client is not None

        def take(request: GatheredRequest, data: bytes) -> None:
            self.requests.append((request, data[head_size:]))

        return take

    def say(self, exchange: Exchange) -> None:
        self.alone.append(bytes(exchange.body))
        exchange.answer(OK, b"alone " + exchange.body)

    def answer(self) -> None:
        requests, bodies = self._taken()
        answer_together(requests, OK, [b"gathered " + body for body in bodies])

    def fail(self, error: Exception) -> None:
        requests, _ = self._taken()
        fail_together(requests, error)

    def begin_each(self) -> None:
        requests, _ = self._taken()
        give_back_together(requests)
        for request in requests:
            assert isinstance(request, GatheredRequest)
            exchange = request.begun()
            if exchange is not None:
                self.say(exchange)

    def counted(self, status: int) -> float:
        return self._sample("eruca_http_requests_total", {"status": str(status)})

    def counted_seconds(self) -> float:
        """Return the sum of the times of all requests so far."""
        return self._sample("eruca_http_request_seconds_sum", {})

    def _sample(self, name: str, labels: dict[str, str]) -> float:
        registry = CollectorRegistry()
        registry.register(self.app.metrics)
        labels = {"method": "POST", "route": "/v1/gather"} | labels
        return registry.get_sample_value(name, labels) or 0

    def _taken(self) -> tuple[Sequence[Gathered], list[bytes]]:
        taken, self.requests = self.requests, []
        return [request for request, _ in taken], [body for _, body in taken]


class Served:
    """The service on a port, and connections whose next request may be gathered."""

    def __init__(
        self, gatherer: Gatherer, server: Server, address: tuple[str, int], stack: AsyncExitStack
    ) -> None:
        self.gatherer = gatherer
        self.server = server
        self._address = address
        self._stack = stack

    async def connection(self, size: int = 2) -> Connection:
        """Return a connection whose next request with a body of *size* bytes has a known head."""
        reader, writer = await self._stack.enter_async_context(raw_connection(self._address))
        for _ in range(2):  # the first one of a connection is not learnt
            writer.write(said(b"-" * size))
            assert (await answer_of(reader))[2] == b"alone " + b"-" * size
        self.gatherer.alone.clear()
        return reader, writer

    def protocol(self) -> ServiceProtocol:
        """Return the server's side of the only connection."""
        [protocol] = self.server.server_state.connections
        assert isinstance(protocol, ServiceProtocol)
        return protocol

    async def gathered(self, body: bytes) -> Connection:
        """Return a connection with one gathered request."""
        reader, writer = await self.connection(len(body))
        count = len(self.gatherer.requests)
        writer.write(said(body))
        await until(lambda: len(self.gatherer.requests) > count)
        return reader, writer


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    gatherer = Gatherer()
    async with (
        serving(gatherer.app, settings(keep_alive_seconds=1)) as (server, address),
        AsyncExitStack() as stack,
    ):
        yield Served(gatherer, server, address, stack)
        await until(lambda: not gatherer.budget.used)


async def test_each_gets_its_own_answer(served: Served) -> None:
    connections = [await served.gathered(b"+%d" % number) for number in range(5)]
    assert served.gatherer.budget.used == 5 * RESERVE_SIZE
    before = served.gatherer.counted(200)

    served.gatherer.answer()

    answers = [await answer_of(reader) for reader, _ in connections]
    assert [body for _, _, body in answers] == [b"gathered +%d" % number for number in range(5)]
    assert {status for status, _, _ in answers} == {200}
    assert served.gatherer.counted(200) == before + 5
    ids = {headers["x-request-id"] for _, headers, _ in answers}
    assert len(ids) == 5
    assert {len(each) for each in ids} == {16}


async def test_an_answer_has_the_head_that_one_alone_has(served: Served) -> None:
    reader, writer = await served.gathered(b"+ab")
    served.gatherer.answer()
    _, gathered, _ = await answer_of(reader)

    writer.write(said(b"-abcde", NAMED))
    _, alone, _ = await answer_of(reader)

    assert list(gathered) == list(alone)
    for headers in (gathered, alone):
        del headers["x-request-id"]
    assert gathered == alone


async def test_a_connection_is_gathered_again_and_again(served: Served) -> None:
    reader, writer = await served.gathered(b"+a")
    for number in range(9):
        served.gatherer.answer()
        await answer_of(reader)
        body = b"+%0*d" % (1 + number % 3, number)  # heads of several lengths
        writer.write(said(body))
        await until(lambda: bool(served.gatherer.requests or served.gatherer.alone))
        served.gatherer.alone.clear()
    served.gatherer.answer()
    await answer_of(reader)


@pytest.mark.parametrize(
    "other", [said(b"-1"), said(b"+1", NAMED), said(b"+" + bytes(9)), said(b"+1") * 2]
)
async def test_other_requests_are_exchanges(served: Served, other: bytes) -> None:
    reader, writer = await served.connection()

    writer.write(other)

    assert (await answer_of(reader))[2].startswith(b"alone ")
    assert not served.gatherer.requests


@pytest.mark.parametrize("missing", [1, 2, 3, 30])
async def test_one_that_comes_in_two_reads_is_an_exchange(
    served: Served, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    reader, writer = await served.connection()
    protocol = served.protocol()
    read: list[bytes] = []
    data_received = protocol.data_received

    def seeing(data: bytes) -> None:
        data_received(data)
        read.append(data)

    sent = said(b"+1")
    monkeypatch.setattr(protocol, "data_received", seeing)

    writer.write(sent[:-missing])
    await until(lambda: read == [sent[:-missing]])
    writer.write(sent[-missing:])

    assert (await answer_of(reader))[2] == b"alone +1"


async def test_what_comes_behind_it_is_answered_behind_it(served: Served) -> None:
    reader, writer = await served.gathered(b"+1")

    writer.write(said(b"-2") + said(b"+3"))
    await until(lambda: served.gatherer.alone == [b"-2", b"+3"])
    served.gatherer.answer()

    answers = [(await answer_of(reader))[2] for _ in range(3)]
    assert answers == [b"gathered +1", b"alone -2", b"alone +3"]


async def test_a_half_request_behind_it_changes_nothing(served: Served) -> None:
    reader, writer = await served.gathered(b"+1")
    protocol = served.protocol()

    writer.write(said(b"+2")[:20])
    await until(lambda: protocol._gathered.data is None)
    served.gatherer.answer()

    assert (await answer_of(reader))[2] == b"gathered +1"
    writer.write(said(b"+2")[20:])
    assert (await answer_of(reader))[2] == b"alone +2"


async def test_after_a_half_close_it_is_answered_and_the_connection_closed(served: Served) -> None:
    reader, writer = await served.gathered(b"+1")
    protocol = served.protocol()

    writer.write_eof()
    await until(lambda: protocol._gathered.data is None)
    served.gatherer.answer()

    assert (await answer_of(reader))[2] == b"gathered +1"
    assert await reader.read() == b""


async def test_an_answer_whose_client_has_left_is_counted_and_sent_to_nobody(
    served: Served,
) -> None:
    _, writer = await served.gathered(b"+1")
    before = served.gatherer.counted(200)

    plain = writer.get_extra_info("socket")
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()  # with a reset: an end would look like a half-close
    await until(lambda: not served.server.server_state.connections)
    served.gatherer.answer()

    assert served.gatherer.counted(200) == before + 1


async def test_a_connection_with_a_gathered_request_is_not_idle(served: Served) -> None:
    reader, _ = await served.gathered(b"+1")
    protocol = served.protocol()

    with pytest.raises(asyncio.TimeoutError):  # longer than the keep-alive time, and a sweep
        await asyncio.wait_for(reader.read(1), 2.5)
    assert protocol.idle_since() is None
    served.gatherer.answer()

    assert (await answer_of(reader))[2] == b"gathered +1"
    assert await asyncio.wait_for(reader.read(), 5) == b""  # … and is idle from now on


async def test_each_failure_is_a_problem_of_its_own(served: Served) -> None:
    connections = [await served.gathered(b"+%d" % number) for number in range(3)]

    served.gatherer.fail(DiskFullError("the disk is full"))

    answers = [await answer_of(reader) for reader, _ in connections]
    assert {status for status, _, _ in answers} == {503}
    assert {headers["content-type"] for _, headers, _ in answers} == {"application/problem+json"}
    assert len({headers["x-request-id"] for _, headers, _ in answers}) == 3


async def test_begun_alone_it_is_an_exchange_like_any_other(served: Served) -> None:
    reader, _ = await served.gathered(b"+1")

    served.gatherer.begin_each()

    assert (await answer_of(reader))[2] == b"alone +1"


async def test_begun_alone_it_may_be_refused(served: Served) -> None:
    reader, _ = await served.gathered(b"+1")

    served.gatherer.app.readiness.not_ready("it rests")
    served.gatherer.begin_each()

    assert (await answer_of(reader))[0] == 503


def answer_each(gatherer: Gatherer) -> None:
    gatherer.answer()


def fail_each(gatherer: Gatherer) -> None:
    gatherer.fail(DiskFullError("the disk is full"))


@pytest.mark.parametrize("settle", [answer_each, fail_each, Gatherer.begin_each])
@pytest.mark.parametrize("is_drawn", [False, True])
async def test_each_is_timed_from_its_own_arrival(
    served: Served, settle: Callable[[Gatherer], None], is_drawn: bool
) -> None:
    gatherer = served.gatherer
    first, writer = await served.gathered(b"+1")
    second, _ = await served.gathered(b"+2")
    before = gatherer.counted_seconds()
    earlier, later = [request for request, _ in gatherer.requests]
    assert earlier.arrived < later.arrived
    earlier.arrived -= 3600  # as if it had come an hour ago
    later.arrived -= 60
    if is_drawn:
        writer.write(said(b"+1")[:10])
        await until(lambda: earlier.data is None)

    settle(gatherer)
    for reader in (first, second):
        await answer_of(reader)

    assert gatherer.counted_seconds() - before == pytest.approx(3660, abs=59)


async def test_a_service_that_is_not_ready_gathers_nothing(served: Served) -> None:
    reader, writer = await served.connection()
    served.gatherer.app.readiness.not_ready("it rests")

    writer.write(said(b"+1"))

    assert (await answer_of(reader))[0] == 503
    assert not served.gatherer.requests


async def test_beyond_the_budget_nothing_is_gathered(served: Served) -> None:
    reader, writer = await served.connection()
    taken = MIB - RESERVE_SIZE + 1
    served.gatherer.budget.take(taken)

    writer.write(said(b"+1"))

    status, _, body = await answer_of(reader)
    assert status == 429
    assert b"gathered_max" in body
    assert not served.gatherer.requests
    served.gatherer.budget.give(taken)


async def test_the_last_answer_before_a_stop_closes_the_connection() -> None:
    gatherer = Gatherer()
    async with (
        serving(gatherer.app, settings()) as (server, address),
        AsyncExitStack() as stack,
    ):
        reader, _ = await Served(gatherer, server, address, stack).gathered(b"+1")
        gatherer.app.stop_hooks.remove(gatherer.answer)
        server.stop()
        await until(lambda: server.watch.is_stopping)
        gatherer.answer()

        _, headers, body = await answer_of(reader)
        assert (headers["connection"], body) == ("close", b"gathered +1")
        assert await reader.read() == b""
