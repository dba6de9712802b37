"""Requests as they should be: sent as given, in turn, with bodies of any size."""

from __future__ import annotations

import asyncio
import socket

import pytest

from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.http1_connection import JOIN_SIZE
from eruca.aio.http.transport import keep_alive_options
from support.http1_clients import SECONDS, get, post
from support.http_peers import OK, answering, peer, read_request

pytestmark = pytest.mark.anyio


async def test_a_request_is_sent_as_it_is_given(client: Http1Transport) -> None:
    seen: list[tuple[str, dict[str, str], bytes]] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(OK)

    async with peer(script) as server:
        answer = await client.request(
            "POST",
            server.url,
            "/v1/x?y=1",
            headers=[("content-type", "text/plain")],
            body=[b"ab", bytearray(b"cd"), memoryview(b"ef")],
            timeout=SECONDS,
        )

    line, headers, body = seen[0]
    assert (line, body) == ("POST /v1/x?y=1 HTTP/1.1", b"abcdef")
    assert headers == {
        "host": server.url.removeprefix("http://"),
        "content-type": "text/plain",
        "content-length": "6",
    }
    assert (answer.status, answer.headers, answer.body) == (200, {"content-length": "2"}, b"ok")


async def test_a_connection_that_waits_for_an_answer_is_probed(client: Http1Transport) -> None:
    options = keep_alive_options()
    assert (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) in options
    async with peer(answering(OK)) as server:
        await get(client, server.url)
        [connection] = client._hosts[server.url]._idle
        assert connection._transport is not None
        opened = connection._transport.get_extra_info("socket")
        for level, option, value in options:
            assert bool(opened.getsockopt(level, option)) is bool(value)


async def test_a_post_without_a_body_says_so(client: Http1Transport) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, headers, _ = await read_request(reader)
        body = headers["content-length"].encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n" + body)

    async with peer(script) as server:
        assert await post(client, server.url) == b"0"


async def test_one_connection_serves_one_request_after_another(client: Http1Transport) -> None:
    async with peer(answering(*[OK] * 5)) as server:
        assert [await get(client, server.url) for _ in range(5)] == [b"ok"] * 5
        assert server.connection_count == 1


async def test_requests_at_the_same_time_have_connections_of_their_own(
    client: Http1Transport,
) -> None:
    async with peer(answering(*[OK] * 5)) as server:
        await asyncio.gather(*(get(client, server.url) for _ in range(5)))
        assert server.connection_count == 5


async def test_connections_are_limited_and_requests_wait_their_turn() -> None:
    client = Http1Transport(connections_max=2)
    async with peer(answering(*[OK] * 10)) as server:
        answers = await asyncio.gather(*(get(client, server.url) for _ in range(10)))

        assert (answers, server.connection_count) == ([b"ok"] * 10, 2)
        assert client.open_connections == 2
    await client.close()


@pytest.mark.parametrize("size", [JOIN_SIZE, JOIN_SIZE + 1, 5 * 1024 * 1024])
async def test_a_large_body_arrives_whole(client: Http1Transport, size: int) -> None:
    sent = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, _, body = await read_request(reader)
        writer.write(OK if body == sent else b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n")

    async with peer(script) as server:
        half = size // 2
        assert await post(client, server.url, sent[:half], sent[half:]) == b"ok"
