"""A service's application under test: in process without sockets, or on a real port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager

import httpx

from eruca_chassis.app import ServiceApp
from eruca_chassis.running.serving import Server, serve
from eruca_chassis.running.settings import ServiceSettings
from eruca_chassis.sockets.listening import listen


@asynccontextmanager
async def client_of(app: ServiceApp) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client that calls *app* in process, its lifespan started."""
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client,
    ):
        yield client


class _WatchedServer(Server):
    """A server that tells when the service has started, and is a guest in its process.

    Signals are the tests'. Of servers that are stopped in the order they were started in, the first
    would leave its handler behind as the last one's, and Ctrl-C would be lost in all that follows.
    """

    def __init__(self, app: ServiceApp, settings: ServiceSettings) -> None:
        super().__init__(app, settings)
        self.has_begun = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.has_begun.set()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def serving(
    app: ServiceApp, settings: ServiceSettings, *, port: int = 0
) -> AsyncIterator[tuple[Server, tuple[str, int]]]:
    """Serve *app* on a port of the loopback, as a process would but for signals.

    Yields server and address. Port 0 is any free one.
    """
    listeners = listen("127.0.0.1", port, settings.backlog)
    server = _WatchedServer(app, settings)
    task = asyncio.create_task(serve(server, listeners))
    has_begun = asyncio.create_task(server.has_begun.wait())
    await asyncio.wait((task, has_begun), return_when=asyncio.FIRST_COMPLETED)
    has_begun.cancel()
    try:
        yield server, listeners[0].getsockname()[:2]
    finally:
        server.stop()
        await task


@asynccontextmanager
async def raw_connection(
    address: tuple[str, int], *, receive_buffer: int | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a plain TCP connection, to say what no HTTP client would."""
    plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if receive_buffer is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, address)
    reader, writer = await asyncio.open_connection(sock=plain)
    try:
        yield reader, writer
    finally:
        writer.close()
