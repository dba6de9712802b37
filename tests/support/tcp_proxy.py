"""A network between two processes that can be cut: TCP passed on, refused, or swallowed.

``cut``: connections are broken and new ones refused at once, as when a host is down. ``freeze``:
everything is accepted and nothing arrives, as when a cable is pulled or a firewall drops packets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from eruca_deploy.ports import free_ports

_READ_SIZE = 65_536


class TcpProxy:
    """Passes connections to its port on to *target*.

    Args:
        target: Host and port, or the path of a Unix socket.
    """

    def __init__(self, target: tuple[str, int] | Path) -> None:
        self.port = free_ports("127.0.0.1", 1)[0]  # of those that nobody else is given meanwhile
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def start(self) -> None:
        """Listen: at the same port again after a cut."""
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", self.port)

    async def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()  # also those that wait for a frozen network
        await asyncio.gather(*tasks, return_exceptions=True)

    def freeze(self) -> None:
        """Let nothing through, in either direction, and say nothing about it."""
        self._flowing.clear()

    async def heal(self) -> None:
        """Let everything through again; what was swallowed arrives."""
        self._flowing.set()
        if self._server is None:
            await self.start()

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        # A task of our own: asyncio's complains about one that is cancelled.
        task = asyncio.create_task(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._flowing.wait()
            there, back = await self._connect()
            self._writers.add(back)
            try:
                await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
            finally:
                self._writers.discard(back)
                back.transport.abort()
        except OSError:
            pass  # the target is unreachable: the caller learns it by the end
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, Path):
            return await asyncio.open_unix_connection(str(self._target))
        return await asyncio.open_connection(*self._target)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(_READ_SIZE):
                await self._flowing.wait()
                sink.write(data)
                await sink.drain()
        with suppress(OSError, RuntimeError):
            sink.write_eof()


@asynccontextmanager
async def tcp_proxy(target: tuple[str, int] | Path) -> AsyncIterator[TcpProxy]:
    """Yield a proxy that passes everything on."""
    proxy = TcpProxy(target)
    await proxy.start()
    try:
        yield proxy
    finally:
        proxy._flowing.set()
        await proxy.cut()
