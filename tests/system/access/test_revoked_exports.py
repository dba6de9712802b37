"""A revocation cuts an export that runs, the connection that a worker writes to included."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

import eruca
from eruca_deploy.cluster import LocalCluster
from support.rules import bearer, key_of, write_rules
from support.services import raw_connection

pytestmark = pytest.mark.anyio

SERVICES: Final = "service:all"
ANALYST: Final = "user:analyst"
READS: Final = {"allow": ["query"], "on": ["topic:orders"], "to": [ANALYST]}
ROLES: Final = {role: [SERVICES] for role in ("administrator", "broker", "query-service")}
COUNT: Final = 400
BODY_SIZE: Final = 100_000  # bytes; all of them are several times what sockets take in
PATIENCE_SECONDS: Final = 60.0
EFFECTIVE_SECONDS: Final = 10.0  # half a second on a quiet machine, and two are promised
END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
SMALL_BUFFER: Final = 16 * 1024


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def fill(urls: str) -> None:
    async with eruca.AsyncClient(urls) as operator:
        await operator.admin.create_topic("orders", queue_count=1)
        async with operator.producer(compression_threshold_bytes=None) as producer:
            messages = [eruca.Message("orders", bytes(BODY_SIZE)) for _ in range(COUNT)]
            await producer.send_many(messages)


def request_for(url: str) -> bytes:
    target = f"/v1/exports/orders/records?range=broker-a/0:0-{COUNT}"
    key = key_of(ANALYST)
    host = urlsplit(url).netloc
    head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode()


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Return what arrives until the connection ends, in whichever way."""
    received = bytearray()
    with suppress(ConnectionError):
        while piece := await reader.read(1 << 20):
            received += piece
    return bytes(received)


async def test_an_export_that_runs_is_cut_when_its_right_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_rules(tmp_path / "rules.toml", READS, roles=ROLES)
    monkeypatch.setenv("ERUCA_API_KEY", key_of(SERVICES))
    monkeypatch.setenv("ERUCA_AUTH_FILE", str(path))
    async with LocalCluster(queries=1) as cluster, asyncio.timeout(PATIENCE_SECONDS):
        await fill(";".join(cluster.namesrv_urls))
        [url] = cluster.query_urls
        place = urlsplit(url)
        assert place.hostname is not None
        assert place.port is not None
        address = (place.hostname, place.port)
        for is_revoked in (False, True):
            async with raw_connection(address, receive_buffer=SMALL_BUFFER) as (reader, writer):
                writer.write(request_for(url))
                head = await reader.readuntil(b"\r\n\r\n")
                assert b" 200 OK" in head, head
                await reader.readexactly(1_000_000)  # a worker writes, and waits for the reader
                if not is_revoked:
                    assert END_OF_STREAM in (await rest_of(reader))[-100:]
                    continue
                write_rules(path, roles=ROLES, principals=[ANALYST])
                revoked_at = time.monotonic()
                async with httpx.AsyncClient() as http:
                    while await status(http, url) == 200:
                        pass
                rest = await rest_of(reader)
                took_seconds = time.monotonic() - revoked_at
        assert END_OF_STREAM not in rest[-100:]
        assert len(rest) < COUNT * BODY_SIZE / 2
        assert took_seconds < EFFECTIVE_SECONDS


async def status(http: httpx.AsyncClient, url: str) -> int:
    target = f"{url}/v1/exports/orders/plan"
    return (await http.get(target, headers=bearer(ANALYST))).status_code
