"""Connections: clients that send or read too slowly."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest

from eruca_chassis.connections import connection_watch
from support.connection_things import MIB, Things, answer_of, ask_and_read_nothing, limits
from support.services import raw_connection, serving
from support.waiting import until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "unfinished",
    [
        b"",
        b"GET /heal",
        b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf",
    ],
    ids=["nothing", "half a head", "half a body"],
)
async def test_a_request_that_does_not_arrive_in_time_is_refused(unfinished: bytes) -> None:
    async with (
        serving(Things().app(), limits(request_seconds=0.5)) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(unfinished)

        status, _, body = await answer_of(reader)

        assert status == 408
        assert "request_seconds, 0.5 s" in json.loads(body)["detail"]
        assert await reader.read() == b""


async def test_uploads_one_after_another_are_each_given_their_time() -> None:
    """At every sweep some upload is under way, but never the same."""
    upload = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
    async with (
        serving(Things().app(), limits(request_seconds=1)) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(upload)
        for _ in range(16):
            await asyncio.sleep(0.2)  # the slowness under test: 3.2 s in all
            writer.write(b"body" + upload)
            assert (await answer_of(reader))[::2] == (200, b"4")


async def test_a_trickle_holds_nothing_longer() -> None:
    async with (
        serving(Things().app(), limits(request_seconds=0.5)) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(
            b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n"
        )
        answered = asyncio.create_task(answer_of(reader))
        while not answered.done():
            writer.write(b"x")
            await asyncio.sleep(0.05)  # the slowness under test

        status, _, _ = await answered

        assert status == 408


UPLOAD_HEAD = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n"
CHUNKED_HEAD = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begun", "limit"),
    [
        (b"", "head_seconds"),
        (b"GET /heal", "head_seconds"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", "head_seconds"),
        (UPLOAD_HEAD, "bytes_per_second_min"),
        (UPLOAD_HEAD + bytes(4_000), "bytes_per_second_min"),
        (UPLOAD_HEAD + bytes(400_000), "bytes_per_second_min"),
        (CHUNKED_HEAD + b"4\r\nhalf\r\n", "bytes_per_second_min"),
    ],
    ids=["nothing", "a line", "a header", "no body", "a little", "much", "a chunk"],
)
async def test_what_stops_coming_is_refused_long_before_the_request_must_be_whole(
    begun: bytes, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_watch, "BODY_WINDOW_SECONDS", 0.5)
    things = Things()
    async with (
        serving(things.app(), limits(head_seconds=0.5)) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(begun)

        status, headers, body = await answer_of(reader)

        assert (status, headers["connection"]) == (408, "close")
        problem = json.loads(body)
        assert (problem["code"], problem["retryable"]) == ("request-timeout", True)
        assert limit in problem["detail"]
        assert await reader.read() == b""
        assert things.budget.used == 0


@pytest.mark.parametrize("head", [UPLOAD_HEAD, CHUNKED_HEAD], ids=["announced", "chunked"])
async def test_a_trickling_body_is_refused_however_steadily_it_comes(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_watch, "BODY_WINDOW_SECONDS", 0.5)
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(head)
        answered = asyncio.create_task(answer_of(reader))
        while not answered.done():
            writer.write(b"x" if head is UPLOAD_HEAD else b"1\r\nx\r\n")
            await asyncio.sleep(0.05)  # the slowness under test

        status, _, body = await answered

        assert (status, b"bytes_per_second_min" in body) == (408, True)


async def test_a_trickling_reader_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serving(Things().app(), limits(unread_seconds=0.5, bytes_per_second_min=MIB)) as (
            server,
            address,
        ),
        raw_connection(address, receive_buffer=4_096) as (reader, writer),
    ):
        ask_and_read_nothing(writer)
        await until(lambda: server.watch.unread_size)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        with suppress(ConnectionResetError, asyncio.IncompleteReadError):
            while server.watch.connections:
                await reader.readexactly(1_000)
                await asyncio.sleep(0.02)  # the slowness under test

        await until(lambda: not server.watch.connections)
