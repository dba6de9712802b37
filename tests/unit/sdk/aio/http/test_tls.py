"""Certificate authorities: loaded for ``https://`` alone, once, and never by the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

import eruca
from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.httpx_carrier import Carrier
from support.authorities import watch_loading
from support.http_peers import OK, answering, peer

pytestmark = pytest.mark.anyio

CLIENTS = 19


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    return watch_loading(monkeypatch)


async def test_plain_http_loads_no_authorities(loads: list[threading.Thread]) -> None:
    async with peer(answering(OK)) as server:
        client = Http1Transport()
        answer = await client.request("GET", server.url, "/", timeout=20)
        await client.close()

    assert answer.body == b"ok"
    assert loads == []


async def test_clients_and_their_first_sends_over_plain_http_load_no_authorities(
    loads: list[threading.Thread],
) -> None:
    async with peer(answering()) as server:
        url = server.url  # nobody listens there any more
    clients = [eruca.AsyncClient(url, timeout_seconds=20) for _ in range(CLIENTS)]

    async def send(client: eruca.AsyncClient) -> None:
        async with client, client.producer(send_timeout_seconds=20) as producer:
            with pytest.raises(eruca.NameServersUnreachableError):
                await producer.send(eruca.Message("orders", b"x"))

    await asyncio.gather(*map(send, clients))

    assert loads == []


async def test_clients_that_start_together_share_authorities_that_a_thread_loads_once(
    loads: list[threading.Thread],
) -> None:
    async with peer(answering()) as server:
        url = server.url.replace("http://", "https://")
    clients = [Http1Transport() for _ in range(CLIENTS)]

    async def ask(client: Http1Transport) -> None:
        with pytest.raises(eruca.TransportError):
            await client.request("GET", url, "/", timeout=20)
        await client.close()

    await asyncio.gather(*map(ask, clients))

    assert loads
    assert threading.current_thread() not in loads
    assert len(set(loads)) == 1
    once = len(loads)
    another = Http1Transport()
    await ask(another)
    assert len(loads) == once


async def test_the_way_for_plain_http_would_trust_nobody() -> None:
    carrier = Carrier()

    context = carrier._plain._pool._ssl_context

    assert context is not None
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert context.get_ca_certs() == []
    await carrier.aclose()
