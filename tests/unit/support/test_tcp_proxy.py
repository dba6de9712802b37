"""The network that can be cut, before anything is tested with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from support.http_peers import Peer, peer
from support.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = pytest.mark.anyio


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
        await writer.drain()


@pytest.fixture
async def echoing() -> AsyncIterator[Peer]:
    async with peer(echo) as running:
        yield running


@pytest.fixture
async def proxy(echoing: Peer) -> AsyncIterator[TcpProxy]:
    async with tcp_proxy(("127.0.0.1", urlsplit(echoing.url).port or 0)) as proxy:
        yield proxy


async def say(proxy: TcpProxy, text: bytes, *, within_seconds: float = 5) -> bytes:
    async with asyncio.timeout(within_seconds):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        try:
            writer.write(text)
            return await reader.read(100)
        finally:
            writer.close()


async def test_everything_is_passed_on(proxy: TcpProxy) -> None:
    assert await say(proxy, b"hello") == b"hello"


async def test_a_cut_breaks_and_refuses_until_it_is_healed(proxy: TcpProxy) -> None:
    port = proxy.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"one")
    assert await reader.read(100) == b"one"

    await proxy.cut()

    with suppress(ConnectionError):
        assert not await reader.read(100)
    with pytest.raises(ConnectionError):
        await say(proxy, b"two")
    writer.close()
    await proxy.heal()
    assert proxy.port == port
    assert await say(proxy, b"three") == b"three"


async def test_a_frozen_network_says_nothing_and_delivers_in_the_end(proxy: TcpProxy) -> None:
    proxy.freeze()
    with pytest.raises(TimeoutError):
        await say(proxy, b"one", within_seconds=0.1)
    waiting = asyncio.create_task(say(proxy, b"two"))

    await proxy.heal()

    assert await waiting == b"two"
