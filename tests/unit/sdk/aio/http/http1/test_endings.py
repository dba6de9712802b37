"""No server, no TLS, closed clients, forked processes: each has its error."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from eruca.aio.http.credentials import Anonymous
from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.transport import NotConnectedError
from eruca.contract.errors import ClosedError, TimeoutExpiredError, TransportError
from support.http1_clients import SECONDS, get, silent
from support.http_peers import OK, answering, closing_after, peer
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_nobody_there_is_a_transport_error(client: Http1Transport) -> None:
    async with peer(silent) as server:
        url = server.url

    with pytest.raises(TransportError, match=url):
        await get(client, url)


@pytest.mark.parametrize("url", ["ftp://a:1", "http://", "http://a:1/path", "a:1"])
async def test_what_is_no_url_of_a_server_is_refused(client: Http1Transport, url: str) -> None:
    with pytest.raises(TransportError, match="expected the http"):
        await get(client, url)


async def test_plain_http_where_tls_is_expected_is_said_to_be_it() -> None:
    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)

    async with peer(script) as server:
        client = Http1Transport()
        with pytest.raises(NotConnectedError, match="begin with http://"):
            await client.request("GET", server.url.replace("http://", "https://"), "/", timeout=20)
        await client.close()


TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"  # of a server that speaks TLS 1.2


@pytest.mark.parametrize("answer", [TLS_ALERT, b""])
async def test_tls_where_plain_http_is_expected_is_said_to_be_it(answer: bytes) -> None:
    async with peer(closing_after(answer)) as server:
        client = Http1Transport()
        with pytest.raises(TransportError, match=r"https://,? (not|instead of) http://"):
            await client.request("GET", server.url, "/", timeout=20)
        await client.close()


async def test_a_connection_that_ends_in_the_handshake_hints_at_plain_http() -> None:
    async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with peer(script) as server:
        client = Http1Transport()
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
