"""Connections: what frames a request, and its limits."""

from __future__ import annotations

import asyncio
import json

import pytest

from eruca_chassis.connections.framing import HEAD_SIZE_MAX
from support.connection_things import HELLO, Things, answer_of, limits
from support.services import raw_connection, serving

pytestmark = pytest.mark.anyio


CHUNKED = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("piece_size", [1_000_000, 16_384, 1_000])
@pytest.mark.parametrize(
    ("data", "status", "kept"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000, 431, b""),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 30_000, 431, b""),
        (b"GET /" + b"y" * 200_000, 414, b""),
        (b"GET /healthz?" + b"y" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, b""),
        (b"\r\n" * 40_000 + HELLO, 431, b""),
        (CHUNKED + b"1\r\na\r\n0\r\n" + b"X: y\r\n" * 30_000, 431, b"chunk extensions"),
        (CHUNKED + b"1;" + b"x" * 70_000 + b"\r\na\r\n0\r\n\r\n", 431, b"chunk extensions"),
        (CHUNKED + b"0" * 70_000 + b"1\r\na\r\n0\r\n\r\n", 431, b"chunk extensions"),
        (CHUNKED + (b"1;" + b"x" * 999 + b"\r\na\r\n") * 90, 431, b"chunk extensions"),
    ],
    ids=["a header", "headers", "a path", "a query", "lines", "trailers", "x", "zeros", "xs"],
)
async def test_what_frames_a_request_is_bounded_however_it_arrives(
    data: bytes, status: int, kept: bytes, piece_size: int
) -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        for start in range(0, len(data), piece_size):
            writer.write(data[start : start + piece_size])
            await writer.drain()
        received = await reader.read()

    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert b"head_size_max, 65536 bytes" in received
    assert kept in received


@pytest.mark.parametrize("behind", [b"", HELLO, CHUNKED + b"1\r\na\r\n0\r\n\r\n"])
@pytest.mark.parametrize("piece_size", [1_000_000, 65_535, 4_099, 1])
async def test_a_head_may_have_its_limit_and_not_a_byte_more(
    piece_size: int, behind: bytes
) -> None:
    """Also behind another request in the same piece, and in pieces that divide its last line."""
    fixed = len(HELLO) + len(b"X: \r\n")
    for size, status in ((HEAD_SIZE_MAX, 200), (HEAD_SIZE_MAX + 1, 431)):
        head = HELLO[:-2] + b"X: " + b"y" * (size - fixed) + b"\r\n\r\n"
        assert len(head) == size
        async with (
            serving(Things().app(), limits()) as (_, address),
            raw_connection(address) as (reader, writer),
        ):
            if piece_size == 1:  # but for the long part of it
                data = [behind + head[:-9_000], *(bytes([byte]) for byte in head[-9_000:])][:1]
                data += [head[-9_000:-8], *(bytes([byte]) for byte in head[-8:])]
            else:
                whole = behind + head
                data = [whole[i : i + piece_size] for i in range(0, len(whole), piece_size)]
            for piece in data:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if behind:
                assert (await answer_of(reader))[0] == 200
            assert (await answer_of(reader))[0] == status


async def test_honest_chunks_are_taken_however_small_they_are() -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(CHUNKED + b"1\r\na\r\n" * 50_000 + b"0\r\n\r\n" + HELLO)

        assert (await answer_of(reader))[2] == b"50000"
        assert (await answer_of(reader))[0] == 200


async def test_a_trailer_is_no_header() -> None:
    chunked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n%b\r\n"
    trailer = b"1\r\na\r\n0\r\nX-Request-Id: trailer\r\n\r\n"
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(chunked % b"" + trailer)
        assert (await answer_of(reader))[1]["x-request-id"] != "trailer"

        writer.write(chunked % b"X-Request-Id: header\r\n" + trailer)
        assert (await answer_of(reader))[1]["x-request-id"] == "header"


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
UPLOAD = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE
BODIES = [
    (UPLOAD + b"Content-Length: 3\r\n\r\nabc", b"3"),
    (UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"5"),
    (UPLOAD + b"Content-Length: 0\r\n\r\n", b"0"),
    (UPLOAD + b"\r\n", b"0"),
]


@pytest.mark.parametrize("piece_size", [1, 7, 1_000])
async def test_an_upgrade_that_is_offered_is_ignored_without_losing_the_body(
    piece_size: int,
) -> None:
    """Java's client offers h2c in its first requests and goes on in HTTP/1.1 when ignored."""
    said = b"".join(request for request, _ in BODIES) + HELLO
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        for start in range(0, len(said), piece_size):
            writer.write(said[start : start + piece_size])
            await asyncio.sleep(0)

        for _, size in BODIES:
            assert (await answer_of(reader))[::2] == (200, size)
        assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}
