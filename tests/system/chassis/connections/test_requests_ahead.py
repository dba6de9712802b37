"""Connections: requests that are sent before the answer to an earlier one."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from eruca_chassis.connections.connections import AHEAD_MAX, ServiceProtocol
from support.connection_things import FROM_PAGE, HELLO, LATE, MIB, OK, Things, answer_of, limits
from support.services import raw_connection, serving
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with (
        serving(Things().app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        body = b"x" * 7
        upload = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n" + body
        writer.write((upload + HELLO) * 50)

        for _ in range(50):
            assert (await answer_of(reader))[2] == b"7"
            assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}


async def test_requests_far_ahead_are_held_back_before_they_begin_and_answered_in_turn() -> None:
    things = Things()
    count = 2_000
    async with (
        serving(things.app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(LATE * count)
        await until(lambda: len(things.held) == AHEAD_MAX)
        writer.write(HELLO)
        for number in range(count):
            await until(lambda: bool(things.held))
            assert len(things.held) <= AHEAD_MAX
            things.held.pop(0).answer(OK, b"%d" % number)
            assert (await answer_of(reader))[2] == b"%d" % number

        assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}


@pytest.mark.parametrize("ends", [False, True], ids=["stays", "half closes"])
@pytest.mark.parametrize("mix", ["hot", "ordinary", "mixed", "with pages"])
async def test_two_thousand_requests_in_one_write_are_all_answered_in_order(
    mix: str, *, ends: bool
) -> None:
    upload = b"POST /v1/upload HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n%b"
    page = b"Origin: http://localhost\r\n"
    asked, expected = [], []
    for number in range(2_000):
        size = number % 300
        if mix == "ordinary" or (mix == "mixed" and number % 3 == 2):
            asked.append(HELLO)
            expected.append(b'{"status":"ok"}')
        else:
            more = page if mix == "with pages" and number % 5 == 4 else b""
            asked.append(upload % (more, size, bytes(size)))
            expected.append(b"%d" % size)
    things = Things()
    async with (
        serving(things.app(), limits()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(b"".join(asked))
        if ends:
            writer.write_eof()
        answered = [(await answer_of(reader))[2] for _ in asked]

        assert answered == expected
        if ends:
            assert await reader.read() == b""
    assert things.budget.used == 0


async def test_a_held_request_notices_that_its_client_left() -> None:
    things = Things()
    async with serving(things.app(), limits()) as (_, address):
        async with raw_connection(address) as (_, writer):
            writer.write(b"GET /v1/late HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: len(things.held))
        await until(lambda: things.left == 1)


@pytest.mark.parametrize("is_behind_at_once", [True, False])
@pytest.mark.parametrize("held", [LATE, LATE[:-2] + FROM_PAGE], ids=["hot", "uvicorn's"])
async def test_a_held_request_with_others_behind_it_notices_that_its_client_left(
    held: bytes, *, is_behind_at_once: bool
) -> None:
    things = Things()
    async with serving(things.app(), limits()) as (server, address):
        async with raw_connection(address) as (_, writer):
            writer.write(held + HELLO * is_behind_at_once)
            await until(lambda: len(things.held))
            writer.write(HELLO)
            [connection] = server.server_state.connections
            assert isinstance(connection, ServiceProtocol)
            await until(lambda: len(connection.pipeline) == 1 + is_behind_at_once)
        await until(lambda: things.left == 1)


@pytest.mark.parametrize("held", [LATE, LATE[:-2] + FROM_PAGE], ids=["hot", "uvicorn's"])
async def test_what_waits_behind_a_held_request_is_bounded_and_answered(held: bytes) -> None:
    things, count = Things(), 40
    async with (
        serving(things.app(), limits()) as (server, address),
        raw_connection(address) as (reader, writer),
    ):
        upload = (
            b"POST /healthz HTTP/1.1\r\n"
            b"Host: localhost\r\nContent-Length: 50000\r\n\r\n" + bytes(50_000)
        )
        writer.write(held)
        await until(lambda: len(things.held))
        writer.write(upload)
        [connection] = server.server_state.connections
        assert isinstance(connection, ServiceProtocol)
        await until(lambda: len(connection.pipeline) == 1)
        assert not connection.flow.read_paused

        writer.write(upload * (count - 1))
        await until(lambda: connection.flow.read_paused)
        assert sum(len(cycle.body) for cycle, _ in connection.pipeline) < MIB
        things.release()

        assert (await answer_of(reader))[2] == b"released"
        assert [(await answer_of(reader))[0] for _ in range(count)] == [405] * count


async def test_a_refusal_is_not_written_into_an_answer_that_has_a_request_behind_it() -> None:
    large = b"GET /v1/large HTTP/1.1\r\nHost: localhost\r\n" + FROM_PAGE
    with capture_logs() as logs:
        async with (
            serving(Things().app(), limits()) as (_, address),
            raw_connection(address, receive_buffer=4_096) as (reader, writer),
        ):
            writer.write(large + HELLO)
            await reader.readuntil(b"\r\n\r\n")

            writer.write(b"\x16\x03\x01 not HTTP\r\n\r\n")
            await until(lambda: any(entry["event"] == "connection cut" for entry in logs))

            received = b""
            with suppress(ConnectionResetError):
                received = await reader.read()
            assert received.strip(b"\0") == b""
