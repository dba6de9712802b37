"""Large bodies are received into their place: whole, in order, and within the budget."""

from __future__ import annotations

import json

import pytest

from eruca_chassis.connections.body_receiver import LARGE_BODY_SIZE_MIN, BodyReceiver
from eruca_chassis.running.serving import Server
from support.exchanges import (
    LARGE,
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


def is_received_directly(server: Server) -> bool:
    """Tell whether what arrives on the only connection passes the parser by."""
    protocols = [c.transport.get_protocol() for c in server.server_state.connections]
    return any(isinstance(protocol, BodyReceiver) for protocol in protocols)


@pytest.mark.parametrize("missing", [1, LARGE_BODY_SIZE_MIN - 1, LARGE_BODY_SIZE_MIN, 900_000])
async def test_a_large_body_and_what_follows_it_come_whole(things: Things, missing: int) -> None:
    async with (
        serving(things.app, settings()) as (server, address),
        raw_connection(address) as (reader, writer),
    ):
        for number in range(2):  # an unknown head, and a known one
            body = LARGE + b"%d" % number
            sent = said(body)
            writer.write(sent[:-missing])
            if missing >= LARGE_BODY_SIZE_MIN:
                await until(lambda: is_received_directly(server))
            writer.write(sent[-missing:] + said(b"after") + ORDINARY + said(b"last"))

            assert await bodies_of(reader, 2) == [body, b"after"]
            assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}
            assert (await answer_of(reader))[2] == b"last"
            assert not is_received_directly(server)
    assert things.budget.used == 0


async def test_a_large_body_waits_behind_an_answer_that_is_late(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    writer.write(LATE % 1 + said(LARGE) + LATE % 2)
    await until(lambda: {"1", "2"} <= things.late.keys())
    things.release("2")
    things.release("1")

    assert await bodies_of(reader, 3) == [b"1", LARGE, b"2"]


async def test_a_client_that_leaves_in_a_large_body_gives_back_what_it_took(things: Things) -> None:
    async with serving(things.app, settings()) as (server, address):
        async with raw_connection(address) as (_, writer):
            writer.write(said(LARGE)[:400_000])
            await until(lambda: is_received_directly(server))
            await until(lambda: things.budget.used == 400_000 - len(said(LARGE)) + len(LARGE))
        await until(lambda: not server.watch.connections)
    assert things.budget.used == 0


async def test_a_large_body_that_is_not_wanted_is_dropped(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    things.budget.take(things.budget.maximum)
    writer.write(said(LARGE))
    assert (await answer_of(reader))[0] == 429
    things.budget.give(things.budget.maximum)

    writer.write(said(b"after"))
    assert (await answer_of(reader))[2] == b"after"


@pytest.mark.parametrize("come", [0, 1_000, 400_000])
async def test_one_with_a_known_head_is_dropped_as_it_arrives(
    things: Things, connection: Connection, come: int
) -> None:
    reader, writer = connection
    sent = said(LARGE)
    writer.write(sent)
    assert await bodies_of(reader, 1) == [LARGE]
    things.budget.take(things.budget.maximum)
    first = len(sent) - len(LARGE) + come
    writer.write(sent[:first])
    assert (await answer_of(reader))[0] == 429
    things.budget.give(things.budget.maximum)

    writer.write(sent[first:] + said(b"after") + sent)

    assert await bodies_of(reader, 2) == [b"after", LARGE]
    assert things.budget.used == 0


@pytest.mark.parametrize("is_known", [False, True])
async def test_one_refused_while_the_service_stops_is_received_before_the_connection_closes(
    things: Things, is_known: bool
) -> None:
    async with (
        serving(things.app, settings()) as (server, address),
        raw_connection(address) as (reader, writer),
    ):
        sent = said(LARGE)
        if is_known:  # a connection's first head is not learned
            writer.write(sent + sent)
            assert await bodies_of(reader, 2) == [LARGE, LARGE]
        server.watch.is_stopping = True  # as for a connection that comes during the stop
        things.app.readiness.not_ready("it stops")
        writer.write(sent[:1_000])
        status, headers, _ = await answer_of(reader)
        assert (status, headers["connection"]) == (503, "close")
        [connection] = server.server_state.connections
        assert not connection.transport.is_closing()

        writer.write(sent[1_000:])

        assert await reader.read() == b""
    assert things.budget.used == 0
