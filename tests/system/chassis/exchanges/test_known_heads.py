"""A head that came before is not parsed again, and everything else is as for a new one."""

from __future__ import annotations

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from eruca_chassis.connections.connections import ServiceProtocol
from support.exchanges import (
    LATE,
    ORDINARY,
    Connection,
    Things,
    answer_of,
    bodies_of,
    said,
    settings,
)
from support.services import raw_connection, serving
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_a_request_whose_head_is_known_does_not_pass_the_parser(things: Things) -> None:
    async with (
        serving(things.app, settings()) as (server, address),
        raw_connection(address) as (reader, writer),
    ):
        for body in (b"first", b"other", b"sixthy"):
            writer.write(said(body))
            assert (await answer_of(reader))[2] == body
        [protocol] = server.server_state.connections
        assert isinstance(protocol, ServiceProtocol)
        parser, protocol.parser = protocol.parser, None

        writer.write(said(b"again") + said(b"sixteen"[:6]) + said(b"third"))
        assert await bodies_of(reader, 3) == [b"again", b"sixtee", b"third"]

        protocol.parser = parser
        writer.write(said(b"known") + said(b"unheard of") + said(b"known"))
        assert await bodies_of(reader, 3) == [b"known", b"unheard of", b"known"]
    assert things.budget.used == 0


@pytest.mark.parametrize("missing", [1, 4, 5, 40])
async def test_a_known_head_may_come_in_pieces_and_before_its_body(
    connection: Connection, missing: int
) -> None:
    reader, writer = connection
    for _ in range(2):
        writer.write(said(b"whole"))
        assert (await answer_of(reader))[2] == b"whole"
    sent = said(b"parts")

    writer.write(sent[:-missing])
    await writer.drain()
    _, pending = await asyncio.wait([asyncio.create_task(answer_of(reader))], timeout=0.05)
    writer.write(sent[-missing:] + said(b"after"))

    [answering] = pending
    assert (await answering)[2] == b"parts"
    assert (await answer_of(reader))[2] == b"after"


async def test_known_heads_wait_for_what_uvicorn_answers(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    writer.write(said(b"known"))
    assert (await answer_of(reader))[2] == b"known"

    writer.write(ORDINARY)
    writer.write(said(b"later") + LATE % 1 + said(b"final"))
    assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}
    assert (await answer_of(reader))[2] == b"later"
    await until(lambda: "1" in things.late)
    things.release("1")
    assert await bodies_of(reader, 2) == [b"1", b"final"]


async def test_a_known_head_is_refused_like_any_other(things: Things) -> None:
    async with (
        serving(things.app, settings()) as (_, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(said(b"broken"))
        assert (await answer_of(reader))[0] == 500
        with capture_logs():
            writer.write(said(b"broken"))
            assert (await answer_of(reader))[0] == 500
        things.app.readiness.not_ready("it rests")
        writer.write(said(b"broken"))
        assert (await answer_of(reader))[0] == 503
