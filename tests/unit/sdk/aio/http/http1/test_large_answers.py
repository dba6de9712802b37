"""Large answers: received in place, whole and no further than to their ends."""

from __future__ import annotations

import asyncio
import ssl
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from eruca.aio.http.credentials import Anonymous
from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.http1_connection import IN_PLACE_SIZE_MIN, Http1Connection, _BodyReceiver
from eruca.contract.errors import TransportError
from support.authority import Authority
from support.http1_clients import get
from support.http_peers import OK, answering, closing_after, peer, read_request

pytestmark = pytest.mark.anyio

FORGED = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"


class Ends(NamedTuple):
    """A client, and the TLS context of the servers that it trusts; None: plain HTTP."""

    client: Http1Transport
    tls: ssl.SSLContext | None


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
async def ends(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ends]:
    tls, client = None, Http1Transport()
    if request.param:
        authority = Authority(tmp_path)
        pair = authority.pair("127.0.0.1")
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(pair.cert, pair.key)
        trusting = ssl.create_default_context(cafile=authority.ca_file)
        client = Http1Transport(credentials=Anonymous(trusting))
    yield Ends(client, tls)
    await client.close()


@pytest.mark.parametrize("size", [IN_PLACE_SIZE_MIN - 1, IN_PLACE_SIZE_MIN, 5 * 1024 * 1024])
@pytest.mark.parametrize("is_in_pieces", [False, True], ids=["whole", "in pieces"])
async def test_a_large_answer_arrives_whole(ends: Ends, size: int, *, is_in_pieces: bool) -> None:
    sent = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head + sent[:5] if is_in_pieces else head + sent)
        await writer.drain()
        if is_in_pieces:
            await asyncio.sleep(0)
            writer.write(sent[5:])
        await read_request(reader)
        writer.write(OK)

    async with peer(script, ends.tls) as server:
        assert await get(ends.client, server.url) == sent
        assert await get(ends.client, server.url) == b"ok", "the connection serves the next request"
        assert server.connection_count == 1


async def test_a_large_answer_takes_its_memory_once(client: Http1Transport) -> None:
    piece, count = bytes(64 * 1024), 100

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (count * len(piece)))
        for _ in range(count):
            writer.write(piece)
            await writer.drain()  # the server's share of the memory is small

    async with peer(script) as server:
        tracemalloc.start()
        try:
            body = await get(client, server.url)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert body.__class__ is bytes
    assert body == piece * count
    assert peak_bytes < 1.5 * len(body)


async def test_a_large_answer_that_ends_early_is_an_error(ends: Ends) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 300_000

    async with peer(closing_after(answer), ends.tls) as server:
        with pytest.raises(TransportError, match="before the answer was complete"):
            await get(ends.client, server.url)
        assert ends.client.open_connections == 0


@pytest.mark.parametrize("size", [1_000, 200_000, 3_000_000])
@pytest.mark.parametrize("behind", [b"x", FORGED], ids=["a byte", "an answer"])
async def test_bytes_behind_an_answer_are_not_taken_for_the_next(
    ends: Ends, size: int, behind: bytes
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size
    async with peer(answering(head + bytes(size) + behind, OK), ends.tls) as server:
        for count in (1, 2):
            assert await get(ends.client, server.url) == bytes(size)
            assert server.connection_count == count


async def test_bytes_that_arrive_before_the_answer_is_delivered_are_not_taken_for_the_next(
    client: Http1Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = list[asyncio.StreamWriter]()
    filled = Http1Connection.filled

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n" + bytes(200_000))
        await reader.read()

    def forge(connection: Http1Connection, receiver: _BodyReceiver) -> None:
        writers[-1].write(FORGED)
        filled(connection, receiver)

    monkeypatch.setattr(Http1Connection, "filled", forge)
    async with peer(script) as server:
        for count in (1, 2):
            assert await get(client, server.url) == bytes(200_000)
            assert server.connection_count == count


@pytest.mark.parametrize("size", [1_000, 200_000, 3_000_000])
@pytest.mark.parametrize("behind", [b"", b"x"], ids=["nothing", "a byte"])
async def test_an_answer_whose_connection_is_then_closed_is_whole(
    ends: Ends, size: int, behind: bytes
) -> None:
    sent = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % size
    async with peer(closing_after(sent + bytes(size) + behind), ends.tls) as server:
        for count in (1, 2):
            assert await get(ends.client, server.url) == bytes(size)
            assert server.connection_count == count
