"""Requests that are repeated, and those that are not; answers that come early."""

from __future__ import annotations

import asyncio
import socket
from threading import Thread

import pytest

from eruca.aio.http import http1
from eruca.aio.http.http1 import Http1Transport
from eruca.contract.errors import TransportError
from support.http1_clients import SECONDS, get, post
from support.http_peers import OK, answering, closing_after, peer, read_request
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_a_get_on_a_connection_that_was_closed_while_idle_is_repeated(
    client: Http1Transport,
) -> None:
    """The server closes right when the second request comes, as at the end of its keep-alive."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)  # and no answer

    async with peer(script) as server:
        assert [await get(client, server.url) for _ in range(2)] == [b"ok"] * 2
        assert server.connection_count == 2


async def test_a_post_is_not_repeated_by_the_client(client: Http1Transport) -> None:
    """Nobody knows whether it was stored: the producer decides, with the message's id in hand."""
    async with peer(closing_after(OK, b"")) as server:
        await get(client, server.url)
        with pytest.raises(TransportError, match="closed"):
            await post(client, server.url, b"x")
        assert server.connection_count == 1


async def test_a_get_is_not_repeated_once_an_answer_has_begun(client: Http1Transport) -> None:
    async with peer(closing_after(OK, b"HTTP/1.1 200")) as server:
        await get(client, server.url)
        with pytest.raises(TransportError, match="closed"):
            await get(client, server.url)
        assert server.connection_count == 1


async def test_a_get_on_a_new_connection_is_not_repeated(client: Http1Transport) -> None:
    async with peer(closing_after(b"")) as server:
        with pytest.raises(TransportError, match="closed"):
            await get(client, server.url)
        assert server.connection_count == 1


@pytest.mark.parametrize("idle_seconds", [0.0, 60.0])
async def test_an_idle_connection_the_server_has_closed_is_not_used(
    client: Http1Transport, monkeypatch: pytest.MonkeyPatch, idle_seconds: float
) -> None:
    monkeypatch.setattr(http1, "IDLE_SECONDS", idle_seconds)
    async with peer(answering(OK)) as server:
        await post(client, server.url, b"x")
        server.cut()
        await asyncio.sleep(0)
        await until(lambda: not server._writers)

        assert await post(client, server.url, b"x") == b"ok"
        assert server.connection_count == 2


async def test_a_connection_that_ended_while_the_event_loop_was_blocked_is_not_used(
    client: Http1Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "IDLE_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        one_answer = Thread(target=answer_once, args=(server, OK))
        one_answer.start()
        assert await post(client, url, b"x") == b"ok"
        one_answer.join()  # as a program that does other work: the event loop sees no end
        another_answer = Thread(target=answer_once, args=(server, OK))
        another_answer.start()

        assert await post(client, url, b"x") == b"ok"
        another_answer.join()


def answer_once(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        received = b""
        while not received.endswith(b"\r\n\r\nx"):
            received += connection.recv(1024)
        connection.sendall(answer)


async def test_nothing_is_kept_of_servers_that_are_gone(client: Http1Transport) -> None:
    for _ in range(3):
        async with peer(answering(OK)) as gone:
            await post(client, gone.url, b"x")
    async with peer(answering(OK, OK)) as first, peer(answering(OK)) as second:
        for server in (first, second, first):
            await post(client, server.url, b"x")

        assert client.open_connections == 2
        assert first.connection_count == second.connection_count == 1


async def test_a_refusal_before_the_body_has_been_read_is_an_answer(client: Http1Transport) -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 4\r\nretry-after: 1\r\n\r\nbusy"

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(refusal)
        await writer.drain()
        await reader.read(2**20)  # some of it, or closing would reset what was just said
        await reader.read()

    async with peer(script) as server:
        answer = await client.request(
            "POST", server.url, "/", body=[bytes(32 * 1024 * 1024)], timeout=SECONDS
        )

        assert (answer.status, answer.body) == (413, b"busy")
        assert client.open_connections == 0
