"""TLS in front of a real PostgreSQL: the one of the tests is built without it.

It answers a client's request for encryption as the server does, and shakes hands with the
certificate of the test. All that follows goes to the server's Unix socket and back.

Source: PostgreSQL 18, "SSL Session Encryption" of the message flow.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from support.authority import Pair

_SSL_REQUEST: Final = bytes.fromhex("0000000804d2162f")
_READ_SIZE: Final = 65_536


@asynccontextmanager
async def encrypted(socket: Path, pair: Pair) -> AsyncIterator[int]:
    """Yield the port at which the server behind *socket* can be reached by TLS alone."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)
    tasks: set[asyncio.Task[None]] = set()

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):  # a client that does not trust it
                assert await reader.readexactly(len(_SSL_REQUEST)) == _SSL_REQUEST
                writer.write(b"S")
                await writer.start_tls(context)
                await _join(reader, writer, socket)
        finally:
            writer.close()
            tasks.discard(task)

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, socket: Path) -> None:
    """Pass on all bytes in both directions, until one side ends."""
    from_server, to_server = await asyncio.open_unix_connection(socket)
    try:
        passing = [
            asyncio.ensure_future(_pass_on(reader, to_server)),
            asyncio.ensure_future(_pass_on(from_server, writer)),
        ]
        await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        for one in passing:
            one.cancel()
        await asyncio.gather(*passing, return_exceptions=True)
    finally:
        to_server.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_READ_SIZE):
        writer.write(piece)
        await writer.drain()
