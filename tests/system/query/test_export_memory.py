"""Memory of the processes that export: the same however much is read, and however slowly."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import psutil
import pytest

import eruca
from support.exports import export_process
from support.in_process_cluster import in_process_cluster
from support.services import raw_connection

pytestmark = pytest.mark.anyio

COUNT = 40_000
BODY_SIZE = 1_000  # bytes
GROWTH_MAX = 100 * 1024 * 1024  # bytes, with two fast readers and eight slow ones
REQUEST = f"/v1/exports/orders/records?range=broker-a/0:0-{COUNT}"


async def read_all(client: httpx.AsyncClient) -> int:
    """Return how many bytes an export has."""
    size = 0
    async with client.stream("GET", REQUEST) as answer:
        assert answer.status_code == 200
        async for piece in answer.aiter_raw():
            size += len(piece)
    return size


def memory_of(service: psutil.Process) -> int:
    """Return what the service has, with its workers."""
    return sum(process.memory_info().rss for process in (service, *service.children()))


async def test_memory_is_bounded_with_fast_and_with_slow_readers(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(in_process_cluster(tmp_path, brokers=1))
        async with eruca.AsyncClient(cluster.namesrv_urls) as client:
            await client.admin.create_topic("orders", queue_count=1)
            async with client.producer() as producer:
                for _ in range(8):
                    await producer.send_many(
                        [eruca.Message("orders", bytes(BODY_SIZE)) for _ in range(COUNT // 8)]
                    )
        service = await stack.enter_async_context(export_process(cluster))
        process = psutil.Process(service.pid)
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=service.url))
        [size, _] = await asyncio.gather(read_all(http), read_all(http))  # everything is in use
        assert size > COUNT * BODY_SIZE
        before = memory_of(process)
        host, _, port = service.url.removeprefix("http://").partition(":")
        for _ in range(8):
            reader, writer = await stack.enter_async_context(
                raw_connection((host, int(port)), receive_buffer=16 * 1024)
            )
            writer.write(f"GET {REQUEST} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert await reader.readexactly(12) == b"HTTP/1.1 200"

        highest = before
        for _ in range(3):
            assert set(await asyncio.gather(read_all(http), read_all(http))) == {size}
            highest = max(highest, memory_of(process))

        assert highest - before < GROWTH_MAX, f"{(highest - before) / 2**20:.0f} MiB more"
