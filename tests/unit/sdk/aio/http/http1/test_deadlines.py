"""Deadlines and cancelled requests: neither costs more than its time, or a connection."""

from __future__ import annotations

import asyncio

import pytest

from eruca.aio.http.http1 import Http1Transport
from eruca.contract.errors import ClosedError, TimeoutExpiredError, TransportError
from support.http1_clients import get, post, silent, trickling
from support.http_peers import OK, answering, peer, read_request
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_a_silent_server_costs_no_more_than_the_time_out(client: Http1Transport) -> None:
    async with peer(silent) as server:
        with pytest.raises(TimeoutExpiredError):
            await get(client, server.url, timeout=0.05)

        assert client.open_connections == 0


async def test_a_trickling_body_costs_no_more_than_the_time_out(client: Http1Transport) -> None:
    async with peer(trickling(b"content-length: 999999999\r\n\r\n")) as server:
        with pytest.raises((TimeoutExpiredError, TransportError)):
            await get(client, server.url, timeout=0.1)


async def test_each_request_has_its_own_deadline(client: Http1Transport) -> None:
    async with peer(silent) as server:
        order: list[str] = []

        async def wait(name: str, timeout: float) -> None:
            with pytest.raises(TimeoutExpiredError):
                await get(client, server.url, timeout=timeout)
            order.append(name)

        await asyncio.gather(wait("long", 0.3), wait("short", 0.05), wait("middle", 0.15))

    assert order == ["short", "middle", "long"]


async def test_waiting_for_a_connection_is_part_of_the_time_out() -> None:
    client = Http1Transport(connections_max=1)
    async with peer(silent) as server:
        holder = asyncio.create_task(get(client, server.url))
        await until(lambda: client.open_connections)

        with pytest.raises(TimeoutExpiredError, match="all 1 connections were busy"):
            await get(client, server.url, timeout=0.05)

        holder.cancel()
    await client.close()


async def test_a_server_that_does_not_read_costs_no_more_than_the_time_out(
    client: Http1Transport,
) -> None:
    started = asyncio.Event()
    ended = asyncio.Event()

    async def deaf(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        started.set()
        await ended.wait()

    async with peer(deaf) as server:
        with pytest.raises(TimeoutExpiredError):
            await post(client, server.url, bytes(32 * 1024 * 1024), timeout=0.3)
        await started.wait()  # the kernel takes a connection before the server does
        ended.set()


async def test_a_cancelled_request_gives_up_its_connection(client: Http1Transport) -> None:
    async with peer(silent) as server:
        request = asyncio.create_task(get(client, server.url))
        await until(lambda: server.connection_count)

        request.cancel()
        await asyncio.wait([request])

        assert (request.cancelled(), client.open_connections) == (True, 0)


async def test_a_request_whose_connection_comes_when_all_is_closed_is_not_sent(
    client: Http1Transport,
) -> None:
    async with peer(answering(OK)) as server:
        request = asyncio.create_task(post(client, server.url))
        await asyncio.sleep(0)  # it begins
        assert client.open_connections == 1

        await client.close()

        with pytest.raises(ClosedError):
            await request
        assert client.open_connections == 0


async def test_a_cancelled_request_that_waited_loses_no_connection_for_others() -> None:
    client = Http1Transport(connections_max=1)
    release = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            await release.wait()
            writer.write(OK)

    async with peer(script) as server:
        first, second, third = (asyncio.create_task(get(client, server.url)) for _ in range(3))
        await until(lambda: server.connection_count)
        second.cancel()
        release.set()

        assert [await first, await third] == [b"ok", b"ok"]
        assert second.cancelled() or second.cancelling()
    await client.close()
