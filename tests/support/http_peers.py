"""HTTP servers that misbehave: each connection is handed to a script that does what it likes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Peer:
    """A server on the loopback; counts what it has seen."""

    def __init__(self, script: Script) -> None:
        self.url = ""
        self.connection_count = 0
        self._script = script
        self._writers: set[asyncio.StreamWriter] = set()

    async def on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Run the script; what the client does to it is no concern of the test."""
        self.connection_count += 1
        self._writers.add(writer)
        try:
            await self._script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)

    def cut(self) -> None:
        """Cut every connection."""
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def peer(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """Yield a server that treats each of its connections by *script*."""
    running = Peer(script)
    server = await asyncio.start_server(running.on_connection, "127.0.0.1", 0, limit=2**20, ssl=tls)
    scheme = "http" if tls is None else "https"
    running.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield running
    finally:
        server.close()
        running.cut()
        await server.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """Return the request line, the headers and the body of the next request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = head.strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (h.partition(": ") for h in rest)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return line, headers, body


def answering(*answers: bytes) -> Script:
    """Return a script that gives these answers to the requests of a connection, then waits."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await read_request(reader)
            writer.write(answer)
        await reader.read()  # until the client goes away

    return script


def answering_anything(answer: bytes) -> Script:
    """Return a script that answers the first bytes, of a TLS handshake for one, and closes."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(2**16)
        writer.write(answer)
        await writer.drain()

    return script


def closing_after(*answers: bytes) -> Script:
    """Return a script that gives these answers, then closes the connection."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await read_request(reader)
            writer.write(answer)
        await writer.drain()

    return script
