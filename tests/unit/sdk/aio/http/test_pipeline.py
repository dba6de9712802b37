"""Several requests on one connection: answered in their order, lost together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from eruca.aio.http.http1 import Http1Transport, _pipe_head
from eruca.aio.http.pipeline import Pipeline, PipelinedConnection
from eruca.aio.http.transport import HttpResponse, NotConnectedError, PipeLostError
from eruca.contract.errors import ClosedError, TimeoutExpiredError, TransportError
from support.waiting import until

pytestmark = pytest.mark.anyio

SECONDS = 30.0


class Peer:
    """A server that collects requests, each with a body of one byte, and answers when told."""

    def __init__(self) -> None:
        self.received = b""
        self.connections = 0
        self.url = ""
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        while data := await reader.read(65_536):
            self.received += data

    def say(self, data: bytes) -> None:
        self._writers[-1].write(data)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


def answer(body: bytes, *, status: bytes = b"201 Created", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


@asynccontextmanager
async def piped() -> AsyncIterator[tuple[Peer, Pipeline, Http1Transport]]:
    peer = Peer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    transport = Http1Transport()
    pipe = transport.pipe()
    assert pipe is not None
    yield peer, pipe, transport
    await transport.close()
    peer.close()
    server.close()
    await server.wait_closed()


Sent = asyncio.Task[HttpResponse]


def send(peer: Peer, pipe: Pipeline, count: int, *, timeout: float = SECONDS) -> list[Sent]:
    return [
        asyncio.create_task(
            pipe.request("POST", peer.url, f"/{n}", body=(b"%d" % n,), timeout=timeout)
        )
        for n in range(count)
    ]


def has(peer: Peer, count: int) -> Callable[[], bool]:
    return lambda: peer.received.count(b"POST /") == count and peer.received[-1:].isdigit()


async def test_requests_are_sent_at_once_and_answered_in_their_order() -> None:
    async with piped() as (peer, pipe, _):
        sent = send(peer, pipe, 3)
        await until(has(peer, 3))
        assert not any(one.done() for one in sent)
        said = answer(b"a") + answer(b"b", status=b"409 Conflict") + answer(b"c")
        for start in range(0, len(said), 7):
            peer.say(said[start : start + 7])
            await asyncio.sleep(0)

        answers = await asyncio.gather(*sent)

        assert [(one.status, one.body) for one in answers] == [
            (201, b"a"),
            (409, b"b"),
            (201, b"c"),
        ]
        assert peer.connections == 1
        places = [peer.received.index(b"POST /%d " % number) for number in range(3)]
        assert places == sorted(places)


async def test_a_lost_connection_fails_everything_and_what_comes_later() -> None:
    async with piped() as (peer, pipe, _):
        sent = send(peer, pipe, 3)
        await until(has(peer, 3))
        peer.say(answer(b"a"))
        await sent[0]
        peer.close()

        for lost in sent[1:]:
            with pytest.raises(TransportError, match="before the answer was complete"):
                await lost
        with pytest.raises(NotConnectedError, match="lost before"):
            await send(peer, pipe, 1)[0]
        assert peer.connections == 1


async def test_no_request_overtakes_those_that_wait_for_the_opening() -> None:
    async with piped() as (peer, _, transport):
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[PipelinedConnection] = loop.create_future()

        async def open_later(_url: str, _deadline: float) -> PipelinedConnection:
            return await opened

        pipe = Pipeline(open_later, _pipe_head, lambda _: None)
        sent = send(peer, pipe, 3)
        await asyncio.sleep(0)
        opened.set_result(await transport._open_pipe(peer.url, loop.time() + SECONDS))
        late = pipe.request("POST", peer.url, "/3", body=(b"3",), timeout=SECONDS)
        sent.append(asyncio.create_task(late))
        await until(has(peer, 4))
        peer.say(answer(b"a") * 4)
        await asyncio.gather(*sent)

    places = [peer.received.index(b"POST /%d " % number) for number in range(4)]
    assert places == sorted(places)


async def test_it_knows_where_it_leads_to() -> None:
    async with piped() as (peer, pipe, _):
        assert pipe.leads_to(peer.url)
        assert pipe.leads_to("http://other")
        sent = send(peer, pipe, 1)
        await until(has(peer, 1))
        assert pipe.leads_to(peer.url)
        assert not pipe.leads_to("http://other")
        peer.say(answer(b"a", more=b"connection: close\r\n"))
        await sent[0]
        assert not pipe.leads_to(peer.url)


async def test_a_deadline_ends_the_connection() -> None:
    async with piped() as (peer, pipe, _):
        with pytest.raises(TimeoutExpiredError):
            await send(peer, pipe, 1, timeout=0.05)[0]
        with pytest.raises(NotConnectedError):
            await send(peer, pipe, 1)[0]


async def test_a_cancelled_request_ends_the_connection() -> None:
    async with piped() as (peer, pipe, _):
        first, second = send(peer, pipe, 2)
        await until(has(peer, 2))
        first.cancel()

        with pytest.raises(TransportError, match="a request was cancelled"):
            await second


@pytest.mark.parametrize(
    "said",
    [
        b"not HTTP",
        b"HTTP/1.1 201 Created\r\n\r\n",
        answer(b"a", more=b"connection: close\r\n"),
        answer(b"a") * 3,
    ],
    ids=["no HTTP", "no length", "closing", "one answer too many"],
)
async def test_an_answer_that_leaves_the_next_one_unclear_ends_the_connection(said: bytes) -> None:
    async with piped() as (peer, pipe, _):
        sent = send(peer, pipe, 2)
        await until(has(peer, 2))
        peer.say(said)
        await asyncio.gather(*sent, return_exceptions=True)

        with pytest.raises(NotConnectedError):
            await send(peer, pipe, 1)[0]


async def test_an_interim_answer_is_passed_over() -> None:
    async with piped() as (peer, pipe, _):
        sent = send(peer, pipe, 1)
        await until(has(peer, 1))
        peer.say(b"HTTP/1.1 103 Early Hints\r\n\r\n" + answer(b"a"))

        assert (await sent[0]).body == b"a"


async def test_closing_the_transport_closes_its_connections() -> None:
    async with piped() as (peer, pipe, transport):
        sent = send(peer, pipe, 1)
        await until(has(peer, 1))
        await transport.close()

        with pytest.raises(ClosedError):
            await sent[0]
        assert transport.pipe() is None


async def test_a_transport_has_a_limited_number_of_them() -> None:
    transport = Http1Transport(connections_max=1)
    pipe = transport.pipe()
    assert pipe is not None
    assert transport.pipe() is None
    await pipe.close()
    assert transport.pipe() is not None
    await transport.close()


async def test_an_unreachable_server_is_said_to_be_one() -> None:
    async with piped() as (peer, pipe, _):
        request = pipe.request("POST", "http://127.0.0.1:1", "/", timeout=SECONDS)
        with pytest.raises(NotConnectedError):
            await request
        assert peer.connections == 0
        with pytest.raises(PipeLostError):
            await send(peer, pipe, 1)[0]
