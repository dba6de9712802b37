"""Answers in every legal form, and bytes that are no answer."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.http1_connection import HEADERS_SIZE_MAX
from eruca.contract.errors import TransportError
from support.http1_clients import SECONDS, get, post, trickling
from support.http_peers import OK, Script, answering, closing_after, peer, read_request

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nx-trailer: 1\r\n\r\n",
            b"abcde",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na", b"a"),
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK, b"ok"),
    ],
    ids=["204", "304", "empty", "chunked", "continue", "early hints"],
)
async def test_every_form_of_answer_is_read_and_the_connection_kept(
    client: Http1Transport, answer: bytes, body: bytes
) -> None:
    async with peer(answering(answer, OK)) as server:
        assert await get(client, server.url) == body
        assert await get(client, server.url) == b"ok"
        assert server.connection_count == 1


async def test_a_trailer_is_not_taken_for_a_header(client: Http1Transport) -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\netag: x\r\n\r\n"
    async with peer(answering(chunked)) as server:
        answer = await client.request("GET", server.url, "/", timeout=SECONDS)

    assert "etag" not in answer.headers


async def test_repeated_headers_are_joined(client: Http1Transport) -> None:
    twice = b"HTTP/1.1 204 x\r\nVary: a\r\nvary: b\r\n\r\n"
    async with peer(answering(twice)) as server:
        answer = await client.request("GET", server.url, "/", timeout=SECONDS)

    assert answer.headers == {"vary": "a, b"}


async def test_an_answer_may_last_until_the_end_of_the_connection(client: Http1Transport) -> None:
    async with peer(closing_after(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")) as server:
        assert await get(client, server.url) == b"until the end"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
    ids=["close", "1.0"],
)
async def test_a_connection_that_the_server_will_close_is_not_used_again(
    client: Http1Transport, answer: bytes
) -> None:
    async with peer(answering(answer, answer)) as server:
        assert [await get(client, server.url) for _ in range(2)] == [b"ok"] * 2
        assert server.connection_count == 2


@settings(max_examples=30)
@given(cuts=st.lists(st.integers(1, 60), max_size=10), is_chunked=st.booleans())
def test_it_does_not_matter_how_an_answer_is_cut_into_packets(
    cuts: list[int], *, is_chunked: bool
) -> None:
    size, body = b"content-length: 5", b"abcde"
    if is_chunked:
        size, body = b"transfer-encoding: chunked", b"5\r\nabcde\r\n0\r\n\r\n"
    whole = b"HTTP/1.1 200 OK\r\n" + size + b"\r\nx-name: value\r\n\r\n" + body

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        position = 0
        for cut in [*cuts, len(whole)]:
            writer.write(whole[position : position + cut])
            await writer.drain()
            position += cut

    async def run() -> None:
        client = Http1Transport()
        async with peer(script) as server:
            for _ in range(2):
                answer = await client.request("GET", server.url, "/", timeout=SECONDS)
                assert (answer.body, answer.headers["x-name"]) == (b"abcde", "value")
        await client.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (closing_after(), "closed"),
        (closing_after(b""), "closed"),
        (closing_after(b"HTTP/1.1 200 OK\r\ncontent-le"), "closed"),
        (closing_after(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort"), "closed"),
        (closing_after(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"), "closed"),
        (closing_after(b"\x16\x03\x01 this is no HTTP\r\n\r\n"), "not HTTP"),
        (closing_after(b"SSH-2.0-OpenSSH_9.6\r\n"), "not HTTP"),
        (closing_after(b"HTTP/1.1 200 OK\r\ncontent-length: ten\r\n\r\n"), "not HTTP"),
        (
            closing_after(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n"),
            "not HTTP",
        ),
        (
            closing_after(b"HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: ws\r\n\r\n"),
            "protocol|not HTTP|closed",
        ),
        (closing_after(b"HTTP/1.1 100 Continue\r\n\r\n" * 100), "too many interim answers"),
        (closing_after(b"HTTP/1.1 200 OK\r\nx: " + b"y" * HEADERS_SIZE_MAX), "headers exceed"),
        (trickling(b"x-endless: 1\r\n"), "headers exceed"),
    ],
    ids=[
        "nothing",
        "nothing, slowly",
        "cut in headers",
        "cut in body",
        "cut in chunk",
        "binary",
        "another protocol",
        "bad length",
        "bad chunk",
        "upgrade",
        "endless interim",
        "one huge header",
        "endless headers",
    ],
)
async def test_what_is_no_answer_is_a_transport_error(
    client: Http1Transport, script: Script, why: str
) -> None:
    async with peer(script) as server:
        with pytest.raises(TransportError, match=why):
            await post(client, server.url, b"body")

        assert client.open_connections == 0


async def test_an_answer_that_is_too_large_is_given_up() -> None:
    client = Http1Transport(response_size_max=1_000)
    async with peer(
        answering(b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n" + bytes(1_001))
    ) as server:
        with pytest.raises(TransportError, match="exceeds 1000 bytes"):
            await get(client, server.url)
    await client.close()


async def test_chunks_that_are_mostly_padding_are_given_up() -> None:
    client = Http1Transport(response_size_max=1_000)
    chunk = b"1;" + b"x" * 1_000 + b"\r\na\r\n"
    start = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with peer(answering(start + chunk * 100)) as server:
        with pytest.raises(TransportError, match="never ends"):
            await get(client, server.url)
    await client.close()


async def test_bytes_after_an_answer_are_not_taken_for_the_next(client: Http1Transport) -> None:
    """The body was longer than its content-length said."""
    too_long = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok and more"
    async with peer(answering(too_long, OK)) as server:
        assert await get(client, server.url) == b"ok"
        assert await get(client, server.url) == b"ok"
        assert server.connection_count == 2


async def test_bytes_after_an_answer_that_came_in_pieces_are_not_taken_for_the_next(
    client: Http1Transport,
) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for piece in (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab", b"cd and more"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)  # or the pieces arrive as one

    async with peer(script) as server:
        assert await get(client, server.url) == b"abcd"
        assert await get(client, server.url) == b"abcd"
        assert server.connection_count == 2


async def test_a_second_answer_nobody_asked_for_is_not_taken_for_the_next(
    client: Http1Transport,
) -> None:
    forged = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"
    async with peer(answering(OK + forged, OK)) as server:
        assert await get(client, server.url) == b"ok"
        assert await get(client, server.url) == b"ok"
        assert server.connection_count == 2
