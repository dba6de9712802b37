"""The small HTTP client, against servers that misbehave in every way it has to survive."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.aio.http.credentials import Anonymous
from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.http1_connection import HEADERS_SIZE_MAX, JOIN_SIZE
from eruca.aio.http.transport import HttpxTransport, NotConnectedError
from eruca.contract.errors import ClosedError, TimeoutExpiredError, TransportError
from support.http_peers import OK, Script, answering, closing_after, peer, read_request
from support.waiting import until

pytestmark = pytest.mark.anyio

SECONDS = 10.0  # enough for anything that does not wait on purpose


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Run every test on both event loops: their transports differ."""
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def client() -> AsyncIterator[Http1Transport]:
    transport = Http1Transport()
    yield transport
    await transport.close()


async def get(client: Http1Transport, url: str, *, timeout: float = SECONDS) -> bytes:
    return (await client.request("GET", url, "/", timeout=timeout)).body


async def post(client: Http1Transport, url: str, *body: bytes, timeout: float = SECONDS) -> bytes:
    return (await client.request("POST", url, "/", body=body, timeout=timeout)).body


# Requests as they should be.


async def test_a_request_is_sent_as_it_is_given(client: Http1Transport) -> None:
    seen: list[tuple[str, dict[str, str], bytes]] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(OK)

    async with peer(script) as server:
        answer = await client.request(
            "POST",
            server.url,
            "/v1/x?y=1",
            headers=[("content-type", "text/plain")],
            body=[b"ab", bytearray(b"cd"), memoryview(b"ef")],
            timeout=SECONDS,
        )

    line, headers, body = seen[0]
    assert (line, body) == ("POST /v1/x?y=1 HTTP/1.1", b"abcdef")
    assert headers == {
        "host": server.url.removeprefix("http://"),
        "content-type": "text/plain",
        "content-length": "6",
    }
    assert (answer.status, answer.headers, answer.body) == (200, {"content-length": "2"}, b"ok")


async def test_a_post_without_a_body_says_so(client: Http1Transport) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, headers, _ = await read_request(reader)
        body = headers["content-length"].encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n" + body)

    async with peer(script) as server:
        assert await post(client, server.url) == b"0"


async def test_one_connection_serves_one_request_after_another(client: Http1Transport) -> None:
    async with peer(answering(*[OK] * 5)) as server:
        assert [await get(client, server.url) for _ in range(5)] == [b"ok"] * 5
        assert server.connection_count == 1


async def test_requests_at_the_same_time_have_connections_of_their_own(
    client: Http1Transport,
) -> None:
    async with peer(answering(*[OK] * 5)) as server:
        await asyncio.gather(*(get(client, server.url) for _ in range(5)))
        assert server.connection_count == 5


async def test_connections_are_limited_and_requests_wait_their_turn() -> None:
    client = Http1Transport(connections_max=2)
    async with peer(answering(*[OK] * 10)) as server:
        answers = await asyncio.gather(*(get(client, server.url) for _ in range(10)))

        assert (answers, server.connection_count) == ([b"ok"] * 10, 2)
        assert client.open_connections == 2
    await client.close()


@pytest.mark.parametrize("size", [JOIN_SIZE, JOIN_SIZE + 1, 5 * 1024 * 1024])
async def test_a_large_body_arrives_whole(client: Http1Transport, size: int) -> None:
    sent = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, _, body = await read_request(reader)
        writer.write(OK if body == sent else b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n")

    async with peer(script) as server:
        half = size // 2
        assert await post(client, server.url, sent[:half], sent[half:]) == b"ok"


# Answers in every legal form.


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


# Answers that are none.


def trickling(data: bytes) -> Script:
    """Return a script that says *data* over and over, and never comes to an end."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0)

    return script


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


# Time.


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()  # until the client has had enough


async def test_a_silent_server_costs_no_more_than_the_time_out(client: Http1Transport) -> None:
    async with peer(silent) as server:
        with pytest.raises(TimeoutExpiredError):
            await get(client, server.url, timeout=0.05)

        assert client.open_connections == 0


async def test_a_trickling_body_costs_no_more_than_the_time_out(client: Http1Transport) -> None:
    async with peer(trickling(b"content-length: 999999999\r\n\r\n")) as server:
        with pytest.raises((TimeoutExpiredError, TransportError)):
            await get(client, server.url, timeout=0.1)


async def test_each_request_has_its_own_deadline(client: Http1Transport) -> None:
    async with peer(silent) as server:
        order: list[str] = []

        async def wait(name: str, timeout: float) -> None:
            with pytest.raises(TimeoutExpiredError):
                await get(client, server.url, timeout=timeout)
            order.append(name)

        await asyncio.gather(wait("long", 0.3), wait("short", 0.05), wait("middle", 0.15))

    assert order == ["short", "middle", "long"]


async def test_waiting_for_a_connection_is_part_of_the_time_out() -> None:
    client = Http1Transport(connections_max=1)
    async with peer(silent) as server:
        holder = asyncio.create_task(get(client, server.url))
        await until(lambda: client.open_connections)

        with pytest.raises(TimeoutExpiredError, match="all 1 connections were busy"):
            await get(client, server.url, timeout=0.05)

        holder.cancel()
    await client.close()


async def test_a_server_that_does_not_read_costs_no_more_than_the_time_out(
    client: Http1Transport,
) -> None:
    started = asyncio.Event()
    ended = asyncio.Event()

    async def deaf(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        started.set()
        await ended.wait()

    async with peer(deaf) as server:
        with pytest.raises(TimeoutExpiredError):
            await post(client, server.url, bytes(32 * 1024 * 1024), timeout=0.3)
        await started.wait()  # the kernel takes a connection before the server does
        ended.set()


async def test_a_cancelled_request_gives_up_its_connection(client: Http1Transport) -> None:
    async with peer(silent) as server:
        request = asyncio.create_task(get(client, server.url))
        await until(lambda: server.connection_count)

        request.cancel()
        await asyncio.wait([request])

        assert (request.cancelled(), client.open_connections) == (True, 0)


async def test_a_request_whose_connection_comes_when_all_is_closed_is_not_sent(
    client: Http1Transport,
) -> None:
    async with peer(answering(OK)) as server:
        request = asyncio.create_task(post(client, server.url))
        await asyncio.sleep(0)  # it begins
        assert client.open_connections == 1

        await client.close()

        with pytest.raises(ClosedError):
            await request
        assert client.open_connections == 0


async def test_a_cancelled_request_that_waited_loses_no_connection_for_others() -> None:
    client = Http1Transport(connections_max=1)
    release = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            await release.wait()
            writer.write(OK)

    async with peer(script) as server:
        first, second, third = (asyncio.create_task(get(client, server.url)) for _ in range(3))
        await until(lambda: server.connection_count)
        second.cancel()
        release.set()

        assert [await first, await third] == [b"ok", b"ok"]
        assert second.cancelled() or second.cancelling()
    await client.close()


# Repetition.


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


async def test_an_idle_connection_the_server_has_closed_is_not_used(client: Http1Transport) -> None:
    async with peer(answering(OK)) as server:
        await post(client, server.url, b"x")
        server.cut()
        await asyncio.sleep(0)
        await until(lambda: not server._writers)

        assert await post(client, server.url, b"x") == b"ok"
        assert server.connection_count == 2


async def test_nothing_is_kept_of_servers_that_are_gone(client: Http1Transport) -> None:
    for _ in range(3):
        async with peer(answering(OK)) as gone:
            await post(client, gone.url, b"x")
    async with peer(answering(OK, OK)) as first, peer(answering(OK)) as second:
        for server in (first, second, first):
            await post(client, server.url, b"x")

        assert client.open_connections == 2
        assert first.connection_count == second.connection_count == 1


# Answers before the request has been written.


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


# Ends.


async def test_nobody_there_is_a_transport_error(client: Http1Transport) -> None:
    async with peer(silent) as server:
        url = server.url

    with pytest.raises(TransportError, match=url):
        await get(client, url)


@pytest.mark.parametrize("url", ["ftp://a:1", "http://", "http://a:1/path", "a:1"])
async def test_what_is_no_url_of_a_server_is_refused(client: Http1Transport, url: str) -> None:
    with pytest.raises(TransportError, match="expected the http"):
        await get(client, url)


@pytest.mark.parametrize("transport", [Http1Transport, HttpxTransport])
async def test_plain_http_where_tls_is_expected_is_said_to_be_it(
    transport: type[Http1Transport | HttpxTransport],
) -> None:
    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)

    async with peer(script) as server:
        client = transport()
        with pytest.raises(NotConnectedError, match="begin with http://"):
            await client.request("GET", server.url.replace("http://", "https://"), "/", timeout=20)
        await client.close()


TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"  # of a server that speaks TLS 1.2


@pytest.mark.parametrize("transport", [Http1Transport, HttpxTransport])
@pytest.mark.parametrize("answer", [TLS_ALERT, b""])
async def test_tls_where_plain_http_is_expected_is_said_to_be_it(
    transport: type[Http1Transport | HttpxTransport], answer: bytes
) -> None:
    async with peer(closing_after(answer)) as server:
        client = transport()
        with pytest.raises(TransportError, match=r"https://,? (not|instead of) http://"):
            await client.request("GET", server.url, "/", timeout=20)
        await client.close()


@pytest.mark.parametrize("transport", [Http1Transport, HttpxTransport])
async def test_a_connection_that_ends_in_the_handshake_hints_at_plain_http(
    transport: type[Http1Transport | HttpxTransport],
) -> None:
    async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with peer(script) as server:
        client = transport()
        with pytest.raises(NotConnectedError, match="write http:// instead of https://"):
            await client.request("GET", server.url.replace("http://", "https://"), "/", timeout=20)
        await client.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
async def test_a_server_with_a_certificate_that_is_trusted_is_spoken_to_by_tls(
    tmp_path: Path,
) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = await asyncio.create_subprocess_exec(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", str(key), "-out", str(certificate)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await made.wait() == 0
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))

    async with peer(answering(OK), of_server) as server:
        client = Http1Transport(credentials=Anonymous(trusting))
        assert await get(client, server.url) == b"ok"
        await client.close()

        stranger = Http1Transport()
        with pytest.raises(TransportError, match=r"(?i)certificate"):
            await get(stranger, server.url)
        await stranger.close()


async def test_closing_ends_requests_under_way_and_refuses_others() -> None:
    client = Http1Transport(connections_max=1)
    async with peer(silent) as server:
        under_way = asyncio.create_task(get(client, server.url))
        await until(lambda: server.connection_count)
        waiting = asyncio.create_task(get(client, server.url))
        await asyncio.sleep(0)

        await client.close()

        for request in (under_way, waiting):
            with pytest.raises(ClosedError):
                await request
        with pytest.raises(ClosedError):
            await get(client, server.url)
        await client.close()  # again, harmless


async def test_a_line_break_cannot_smuggle_in_a_header(client: Http1Transport) -> None:
    async with peer(silent) as server:
        with pytest.raises(AssertionError):
            await client.request(
                "GET", server.url, "/", headers=[("a", "b\r\nc: d")], timeout=SECONDS
            )


def test_another_event_loop_is_refused() -> None:
    async def use(client: Http1Transport) -> None:
        async with peer(answering(OK)) as server:
            await get(client, server.url)

    client = Http1Transport()
    asyncio.run(use(client))

    with pytest.raises(ClosedError, match="another event loop"):
        asyncio.run(use(client))


FORKED = """
import asyncio, os
from eruca.aio.http.credentials import Anonymous
from eruca.aio.http.http1 import Http1Transport
from eruca.contract.errors import ClosedError, TransportError

async def use(client):
    try:
        await client.request("GET", "http://127.0.0.1:1", "/", timeout=5)
    except ClosedError as error:
        print(error, flush=True)
    except TransportError:
        pass
    await client.close()

client = Http1Transport()
client_of_parent = client
async def first():
    try:
        await client.request("GET", "http://127.0.0.1:1", "/", timeout=5)
    except TransportError:
        pass
asyncio.run(first())
if os.fork() == 0:
    asyncio.run(use(client))
    os._exit(0)
os.wait()
"""


def test_a_child_process_is_told_to_make_a_client_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=30, check=True
    )

    assert "before this process was forked" in done.stdout
    assert done.stderr == ""


async def test_a_request_that_is_due_at_once_does_not_disturb_the_next(
    client: Http1Transport,
) -> None:
    async with peer(answering(OK, OK, OK)) as server:
        await asyncio.gather(get(client, server.url), get(client, server.url))  # two connections
        # On uvloop a timer of less than half a millisecond is none.
        late, next_one = await asyncio.gather(
            get(client, server.url, timeout=0.0003),
            get(client, server.url, timeout=0.0002),
            return_exceptions=True,
        )

    for outcome in (late, next_one):
        assert outcome == b"ok" or isinstance(outcome, TimeoutExpiredError), repr(outcome)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:99999", "http://127.0.0.1:x", "http://[::1", "http://a..b:80"],
)
async def test_what_is_no_url_of_a_server_is_an_error_of_the_transport(
    client: Http1Transport, url: str
) -> None:
    with pytest.raises(TransportError):
        await get(client, url)
