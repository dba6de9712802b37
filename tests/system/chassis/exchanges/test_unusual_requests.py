"""Unusual requests over real sockets: HEAD, chunks, Expect, HTTP/1.0, bodies refused."""

from __future__ import annotations

import pytest

from support.exchanges import (
    LARGE,
    LATE,
    MIB,
    ORDINARY,
    Connection,
    Things,
    answer_of,
    said,
)
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_a_head_request_gets_no_body_but_its_length(connection: Connection) -> None:
    reader, writer = connection
    for path, size in ((b"/v1/large/100000", 100_010), (b"/v1/large/0", 10)):
        writer.write(b"HEAD %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: %d" % size in head
    writer.write(said(b"next"))
    assert (await answer_of(reader))[2] == b"next"


async def test_a_chunked_body_is_put_together(things: Things, connection: Connection) -> None:
    reader, writer = connection
    writer.write(b"POST /v1/say HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")

    assert (await answer_of(reader))[2] == b"abcde"
    assert things.budget.used == 0


@pytest.mark.parametrize("is_behind", [False, True])
async def test_a_client_that_expects_100_is_told_to_go_on(
    things: Things, connection: Connection, *, is_behind: bool
) -> None:
    reader, writer = connection
    if is_behind:
        writer.write(LATE % 1)
    writer.write(
        b"POST /v1/say HTTP/1.1\r\n"
        b"Host: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    )
    if is_behind:
        await until(lambda: "1" in things.late)
        things.release("1")
        assert (await answer_of(reader))[2] == b"1"

    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"body")
    assert (await answer_of(reader))[2] == b"body"


async def test_a_client_that_expects_100_is_refused_without_its_body(
    connection: Connection,
) -> None:
    reader, writer = connection
    head = (
        b"POST /v1/say HTTP/1.1\r\n"
        b"Host: localhost\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n"
    )
    writer.write(head)

    status, headers, _ = await answer_of(reader)
    # A client that leaves its body out would otherwise have its next request taken for it.
    assert (status, headers["connection"]) == (413, "close")
    writer.write(bytes(1_000))
    assert await reader.read() == b""


async def test_a_body_that_comes_unasked_does_not_end_the_connection(
    connection: Connection,
) -> None:
    reader, writer = connection
    writer.write(
        b"POST /v1/nothing HTTP/1.1\r\n"
        b"Host: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody"
    )
    status, headers, _ = await answer_of(reader)
    assert (status, "connection" in headers) == (404, False)

    writer.write(said(b"next"))
    assert (await answer_of(reader))[2] == b"next"


async def test_http_1_0_is_not_told_to_go_on(connection: Connection) -> None:
    reader, writer = connection
    writer.write(b"POST /v1/say HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody")

    assert (await answer_of(reader))[2] == b"body"


@pytest.mark.parametrize("first", [b"", LARGE], ids=["at once", "behind a large body"])
@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/say HTTP/1.1\r\n"
        b"Host: localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\n",
        b"POST /v1/say HTTP/1.0\r\nContent-Length: 4\r\n\r\n",
        b"POST /v1/say HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\n",
    ],
    ids=["close", "1.0", "1.0 keep-alive"],
)
async def test_a_connection_that_is_to_be_closed_is_closed_behind_its_answer(
    connection: Connection, head: bytes, first: bytes
) -> None:
    reader, writer = connection
    if first:
        writer.write(said(first))
        assert (await answer_of(reader))[2] == first
    writer.write(head + b"body" + said(b"never") + ORDINARY)

    _, headers, body = await answer_of(reader)

    assert (headers["connection"], body) == ("close", b"body")
    assert await reader.read() == b""


async def test_a_refused_upload_is_read_to_its_end_before_the_connection_closes(
    things: Things, connection: Connection
) -> None:
    """Closing at once would reset the connection under the client, which would not read why."""
    reader, writer = connection
    size = 5 * MIB
    writer.write(
        b"POST /v1/say HTTP/1.1\r\n"
        b"Host: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size
    )
    for _ in range(5):
        writer.write(bytes(MIB))
        await writer.drain()

    assert (await answer_of(reader))[0] == 413
    assert await reader.read() == b""
    assert things.budget.used == 0


async def test_a_path_in_an_unusual_form_is_answered_all_the_same(connection: Connection) -> None:
    reader, writer = connection
    for path in (b"http://localhost/v1/say", b"/v1/s%61y", b"/v1/say?"):
        writer.write(b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody" % path)
        assert (await answer_of(reader))[::2] == (200, b"body"), path
