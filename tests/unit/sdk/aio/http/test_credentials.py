"""Credentials reach every request, whichever client carries it, and choose the TLS context."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import httpx
import pytest

from eruca.aio.http.authorized import AuthorizedTransport
from eruca.aio.http.clients import http1_transport, httpx_client
from eruca.aio.http.credentials import Credentials
from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.tls_contexts import trusted_context
from eruca.aio.http.transport import HttpTransport, NotConnectedError
from eruca.contract.errors import TimeoutExpiredError, UnavailableError
from support.http_peers import OK, Peer, peer, read_request

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Signed:
    """Credentials of a test: a header that names the server, and a count of what was asked."""

    has_headers: Final = True

    def __init__(self, fault: Exception | None = None) -> None:
        self.urls: list[str] = []
        self.context_count = 0
        self.fault = fault

    async def headers(self, url: str) -> Sequence[tuple[str, str]]:
        self.urls.append(url)
        if self.fault is not None:
            raise self.fault
        return (("authorization", f"Bearer for {url}"),)

    async def renew(self, refused: Sequence[tuple[str, str]]) -> bool:
        return False

    async def ssl_context(self) -> ssl.SSLContext:
        self.context_count += 1
        return await trusted_context()


def over(transport: HttpTransport) -> Callable[[str], Awaitable[int]]:
    async def ask(url: str) -> int:
        try:
            answer = await transport.request("POST", url, "/x?y=1", body=(b"z",), timeout=5)
        finally:
            await transport.close()
        return answer.status

    return ask


def by_transport(credentials: Credentials) -> Callable[[str], Awaitable[int]]:
    return over(http1_transport(credentials))


def by_transport_of_the_user(credentials: Credentials) -> Callable[[str], Awaitable[int]]:
    return over(AuthorizedTransport(Http1Transport(), credentials))


def by_httpx_client(credentials: Credentials) -> Callable[[str], Awaitable[int]]:
    async def ask(url: str) -> int:
        async with httpx_client(credentials, timeout=5) as client:
            return (await client.post(f"{url}/x?y=1", content=b"z")).status_code

    return ask


WAYS = [by_transport, by_transport_of_the_user, by_httpx_client]
OURS = [by_transport, by_httpx_client]


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Peer, list[dict[str, str]]]]:
    """Yield a server and the headers of the requests that it got."""
    heads: list[dict[str, str]] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, headers, _ = await read_request(reader)
        heads.append(headers)
        writer.write(OK)
        await reader.read()

    async with peer(script) as server:
        yield server, heads


@pytest.mark.parametrize("way", WAYS)
async def test_each_request_carries_the_headers_of_its_credentials(
    way: Callable[[Credentials], Callable[[str], Awaitable[int]]],
) -> None:
    credentials = Signed()
    async with listening() as (server, heads):
        assert await way(credentials)(server.url) == 200

        assert [head["authorization"] for head in heads] == [f"Bearer for {server.url}"]
    assert credentials.urls == [server.url]


@pytest.mark.parametrize("way", WAYS)
async def test_without_valid_credentials_nothing_is_sent(
    way: Callable[[Credentials], Callable[[str], Awaitable[int]]],
) -> None:
    async with listening() as (server, heads):
        with pytest.raises(UnavailableError, match="the issuer is away"):
            await way(Signed(UnavailableError("the issuer is away")))(server.url)

        assert (server.connection_count, heads) == (0, [])


@pytest.mark.parametrize("way", OURS)
async def test_the_context_of_an_encrypted_connection_is_that_of_the_credentials(
    way: Callable[[Credentials], Callable[[str], Awaitable[int]]],
) -> None:
    async def closing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)

    credentials = Signed()
    async with peer(closing) as server:
        with pytest.raises((NotConnectedError, httpx.ConnectError)):
            await way(credentials)(server.url.replace("http:", "https:"))

    assert credentials.context_count == 1


async def test_credentials_that_do_not_come_take_no_longer_than_the_request_may() -> None:
    class Late(Signed):
        async def headers(self, url: str) -> Sequence[tuple[str, str]]:
            await asyncio.Event().wait()
            raise AssertionError

    client = http1_transport(Late())
    async with listening() as (server, heads):
        with pytest.raises(TimeoutExpiredError, match="no credentials before the deadline"):
            await client.request("GET", server.url, "/", timeout=0.01)

        assert heads == []
    await client.close()
