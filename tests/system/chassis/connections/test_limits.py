"""Connections: what clients may cost, each and together."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pytest
from structlog.testing import capture_logs

from eruca_chassis.admission.budget import RESERVE_SIZE
from eruca_chassis.connections import connection_watch
from support.connection_things import (
    HELLO,
    LATE,
    MIB,
    Things,
    answer_of,
    ask_and_read_nothing,
    limits,
)
from support.services import raw_connection, serving
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_a_client_that_leaves_in_mid_upload_is_noticed() -> None:
    things = Things()
    async with serving(things.app(), limits()) as (_, address):
        async with raw_connection(address) as (_, writer):
            writer.write(
                b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\nhalf"
            )
            await until(lambda: things.budget.used == RESERVE_SIZE)

        await until(lambda: things.budget.used == 0)


async def test_an_upload_beyond_its_limit_is_refused_and_the_rest_not_kept() -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(
            b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (3 * MIB)
        )
        writer.write(bytes(3 * MIB))

        status, _, body = await answer_of(reader)
        assert (status, json.loads(body)["code"]) == (413, "too-large")

        writer.write(HELLO)  # the connection is still good
        assert (await answer_of(reader))[0] == 200


async def test_a_reader_that_reads_nothing_is_cut_and_others_are_served() -> None:
    with capture_logs() as logs:
        async with (
            serving(Things().app(), limits(unread_seconds=0.5)) as (server, address),
            raw_connection(address, receive_buffer=4_096) as (_, stuck),
            raw_connection(address) as (reader, writer),
        ):
            ask_and_read_nothing(stuck)
            await until(lambda: len(server.watch.connections) == 2)
            while len(server.watch.connections) == 2:
                writer.write(HELLO)
                assert (await answer_of(reader))[0] == 200

    assert any("unread_seconds" in entry.get("why", "") for entry in logs)


async def test_a_reader_may_be_slow_as_long_as_it_reads() -> None:
    async with (
        serving(Things().app(), limits(unread_seconds=0.5)) as (_, address),
        raw_connection(address, receive_buffer=65_536) as (reader, writer),
    ):
        writer.write(b"GET /v1/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        left = 8 * MIB
        while left:
            left -= len(await reader.readexactly(min(left, MIB // 2)))
            await asyncio.sleep(0.15)  # the slowness under test: 2.4 s in all


async def test_stuck_readers_together_cost_no_more_than_the_cap() -> None:
    async with AsyncExitStack() as stack:
        logs = stack.enter_context(capture_logs())
        serving_capped = serving(Things().app(), limits(unread_bytes_max=20 * MIB))
        server, address = await stack.enter_async_context(serving_capped)
        for _ in range(6):
            stuck = raw_connection(address, receive_buffer=4_096)
            ask_and_read_nothing((await stack.enter_async_context(stuck))[1])

        await until(lambda: sum("unread_bytes_max" in e.get("why", "") for e in logs) >= 3)

        watch = server.watch
        sizes = [connection.unread_size() for connection in watch.connections]
        assert watch.unread_size <= 20 * MIB
        assert max(sizes) <= 8 * MIB  # one answer each, though three were asked for


async def test_connections_beyond_the_limit_are_told_so() -> None:
    things = Things()
    async with (
        serving(things.app(), limits(connections_max=2)) as (server, address),
        raw_connection(address) as (reader, writer),
        raw_connection(address) as (_, other),
    ):
        for busy in (writer, other):
            busy.write(LATE)
        await until(lambda: len(things.held) == 2)
        async with raw_connection(address) as (refused_reader, refused_writer):
            await until(lambda: len(server.watch.connections) == 3)
            refused_writer.write(HELLO)
            status, headers, body = await answer_of(refused_reader)
            assert (status, json.loads(body)["code"]) == (429, "overloaded")
            assert headers["retry-after"] == "1"
            assert await refused_reader.read() == b""

        things.release()
        assert (await answer_of(reader))[0] == 200


async def test_an_idle_connection_makes_room_for_one_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_watch, "IDLE_SPARED_SECONDS", 0)
    things = Things()
    async with (
        serving(things.app(), limits(connections_max=4)) as (_, address),
        AsyncExitStack() as stack,
        raw_connection(address) as (hot_reader, hot),
        raw_connection(address) as (ordinary_reader, ordinary),
        raw_connection(address) as (silent_reader, _),
        raw_connection(address) as (busy_reader, busy),
    ):
        hot.write(b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx")
        assert (await answer_of(hot_reader))[0] == 200
        ordinary.write(HELLO)
        assert (await answer_of(ordinary_reader))[0] == 200
        busy.write(LATE)
        await until(lambda: things.held)

        for idle in (silent_reader, hot_reader, ordinary_reader):  # the longest idle first
            reader, writer = await stack.enter_async_context(raw_connection(address))
            assert await idle.read() == b""
            writer.write(HELLO)
            assert (await answer_of(reader))[0] == 200

        things.release()
        assert (await answer_of(busy_reader))[2] == b"released"


async def test_stopping_answers_held_requests_and_closes_idle_connections() -> None:
    things = Things()
    async with (
        serving(things.app(), limits()) as (server, address),
        raw_connection(address) as (idle, _),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(b"GET /v1/late HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: len(things.held))

        server.stop()

        status, headers, body = await answer_of(reader)
        assert (status, body) == (200, b"released")
        assert headers["connection"] == "close"
        assert await idle.read() == b""
