"""Lent connections over real sockets: answers that somebody else writes, and how they end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.app import ServiceApp
from eruca_chassis.asgi import ClientGoneError
from eruca_chassis.connections.lending import chunk_of, lender_of
from eruca_chassis.routes.router import Router
from eruca_chassis.running.serving import Server
from eruca_chassis.running.settings import ServiceSettings
from support.services import raw_connection, serving
from support.waiting import until

pytestmark = pytest.mark.anyio
GET = b"GET /v1/lent HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"HEAD /v1/lent HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = 8 * 1024 * 1024  # bytes; several times what sockets take in


class Borrower:
    """Writes the middle of its answers to the connection; *act* decides what and when."""

    def __init__(self) -> None:
        self.act = self._write
        self.borrowed: list[socket.socket] = []  # as another process would hold it
        self.is_gone = False
        router = Router()
        router.get("/v1/lent", needs=PUBLIC)(self._endpoint)
        self.app = ServiceApp(
            title="Lending", summary="", description="", version="1",
            lifespan=self._lifespan, routers=[router],
        )  # fmt: skip

    @asynccontextmanager
    async def _lifespan(self, app: ServiceApp) -> AsyncIterator[None]:
        app.readiness.ready()
        yield

    async def _endpoint(self) -> Response:
        return _Lent(self)

    async def _write(self, connection: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(connection, chunk_of([b"middle ", b"part "]))


class _Lent(Response):
    def __init__(self, borrower: Borrower) -> None:
        super().__init__(media_type="text/plain")
        del self.headers["content-length"]
        self._borrower = borrower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"begin ", "more_body": True})
        lender = lender_of(scope)
        if lender is not None:
            try:
                async with lender.lent() as connection:
                    self._borrower.borrowed.append(connection.dup())
                    await self._borrower.act(connection)
            except ClientGoneError:
                self._borrower.is_gone = True
                return
        await send({"type": "http.response.body", "body": b"end"})


@asynccontextmanager
async def serving_borrower(
    unread_seconds: float = 60,
) -> AsyncIterator[tuple[Borrower, Server, tuple[str, int]]]:
    borrower = Borrower()
    settings = ServiceSettings(port=0, unread_seconds=unread_seconds)
    try:
        async with serving(borrower.app, settings) as (server, address):
            yield borrower, server, address
    finally:
        for connection in borrower.borrowed:
            connection.close()


async def read_chunked(reader: asyncio.StreamReader) -> bytes:
    """Return the body of a chunked answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size)
        assert await reader.readexactly(2) == b"\r\n"
    assert await reader.readexactly(2) == b"\r\n"
    return body


async def test_what_the_borrower_writes_lies_between_what_the_service_does() -> None:
    async with serving_borrower() as (_, _, address), raw_connection(address) as (reader, writer):
        for _ in range(3):
            writer.write(GET)
            assert await read_chunked(reader) == b"begin middle part end"


async def test_requests_sent_ahead_are_answered_behind_it() -> None:
    async with serving_borrower() as (_, _, address), raw_connection(address) as (reader, writer):
        writer.write(GET + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET)

        assert await read_chunked(reader) == b"begin middle part end"
        assert b"200" in await reader.readuntil(b'{"status":"ok"}')
        assert await read_chunked(reader) == b"begin middle part end"


async def test_an_answer_without_a_body_is_not_lent() -> None:
    async with (
        serving_borrower() as (borrower, _, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(HEAD + GET)

        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await read_chunked(reader) == b"begin middle part end"
        assert len(borrower.borrowed) == 1


async def test_half_an_answer_ends_the_connection_though_others_hold_it() -> None:
    async def fail(connection: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(connection, b"ff\r\nhalf a chunk")
        raise ClientGoneError

    async with (
        serving_borrower() as (borrower, _, address),
        raw_connection(address) as (reader, writer),
    ):
        borrower.act = fail
        writer.write(GET)
        answer = await reader.read()

        assert answer.endswith(b"half a chunk")
        with pytest.raises(BrokenPipeError):
            borrower.borrowed[0].send(b"more")


async def test_a_client_that_is_gone_is_told_to_the_borrower() -> None:
    began = asyncio.Event()

    async def write_on(connection: socket.socket) -> None:
        began.set()
        try:
            while True:
                await asyncio.get_running_loop().sock_sendall(connection, bytes(LARGE))
        except ConnectionError:
            raise ClientGoneError from None

    async with serving_borrower() as (borrower, server, address):
        borrower.act = write_on
        async with raw_connection(address) as (_, writer):
            writer.write(GET)
            await began.wait()
            writer.transport.abort()

        await until(lambda: borrower.is_gone)
        await until(lambda: not server.watch.connections)


async def test_what_the_client_has_not_read_is_known_and_cut_in_time() -> None:
    gone = asyncio.Event()

    async def write_too_much(connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(connection, bytes(LARGE))
        except ConnectionError:
            gone.set()
            raise ClientGoneError from None

    async with (
        serving_borrower(unread_seconds=1) as (borrower, server, address),
        raw_connection(address, receive_buffer=16 * 1024) as (_, writer),
    ):
        borrower.act = write_too_much
        writer.write(GET)
        await until(lambda: any(c.unread_size() for c in server.watch.connections))
        await until(lambda: not server.watch.connections)

        borrower.borrowed[0].shutdown(socket.SHUT_RDWR)  # what the service does when it is left
        await gone.wait()


@pytest.mark.parametrize("pieces", [[b"a"], [b"", b"abc"], [memoryview(bytes(300)), b"x"]])
def test_a_chunk_tells_its_size(pieces: list[bytes | memoryview]) -> None:
    size, _, rest = chunk_of(pieces).partition(b"\r\n")

    assert rest == b"".join(pieces) + b"\r\n"
    assert int(size, 16) == len(rest) - 2
