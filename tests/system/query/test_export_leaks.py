"""Leaks after readers that leave early: files, threads, processes, sessions."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import httpx
import psutil
import psycopg
import pytest

import eruca
from eruca_postgres.embedded import EmbeddedServer
from eruca_query.settings import QuerySettings
from support.export_cluster import export_cluster
from support.services import raw_connection
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio

COUNT: Final = 200
BODY_SIZE: Final = 100_000  # bytes; all of them are several times what sockets take in
READERS: Final = 200
TOGETHER: Final = 8  # below what may run at a time
RECORDS: Final = f"/v1/exports/orders/records?range=broker-a/0:0-{COUNT}"
REQUEST: Final = f"GET {RECORDS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
POOL_SIZE_MAX: Final = 32  # threads of the event loop's pool, which grows as it is used
# Of the service to its database, in a pool that grows as it is used; the one that asks is another.
CONNECTIONS_MAX: Final = QuerySettings.model_fields["database_connections_max"].default
SESSIONS: Final = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


async def test_readers_that_leave_leave_nothing_open_and_nothing_running() -> None:
    with export_cluster(brokers=1) as cluster:
        await asyncio.to_thread(fill, cluster.client())
        host, _, port = cluster.url.removeprefix("http://").partition(":")
        chance = random.Random(7)

        async def read_some_and_leave() -> None:
            async with raw_connection((host, int(port)), receive_buffer=16 * 1024) as (
                reader,
                writer,
            ):
                writer.write(REQUEST)
                await reader.read(chance.choice([1, 1_000, 100_000, 1_000_000]))
                if chance.random() < 0.5:
                    writer.transport.abort()

        async def read_all(http: httpx.AsyncClient) -> None:
            answer = await http.get(RECORDS)
            assert answer.status_code == 200, answer.text
            assert len(answer.content) > COUNT * BODY_SIZE

        async def all_read_some_and_leave() -> None:
            for _ in range(READERS // TOGETHER):
                await asyncio.gather(*(read_some_and_leave() for _ in range(TOGETHER)))

        async with httpx.AsyncClient(base_url=cluster.url, timeout=120) as http:
            await asyncio.gather(*(read_all(http) for _ in range(TOGETHER)))
            await http.get("/v1/status")
        await all_read_some_and_leave()
        service = psutil.Process(cluster.query_pid)
        await quiet(service)
        files, threads = service.num_fds(), service.num_threads()
        processes = {process.pid for process in service.children()}
        with EmbeddedServer(cluster.postgres_dir) as server, psycopg.connect(server.url) as asking:
            sessions = count_of(asking)

            await all_read_some_and_leave()

            await until(lambda: service.num_fds() <= files)
            assert service.num_threads() <= threads + POOL_SIZE_MAX
            assert {process.pid for process in service.children()} <= processes
            assert count_of(asking) <= max(sessions, CONNECTIONS_MAX + 1)
        async with httpx.AsyncClient(base_url=cluster.url, timeout=120) as http:
            await read_all(http)


def fill(client: eruca.Client) -> None:
    """Put 20 MB into one queue."""
    with client, client.producer(compression_threshold_bytes=None) as producer:
        client.admin.create_topic("orders", queue_count=1)
        producer.send_many([eruca.Message("orders", bytes(BODY_SIZE)) for _ in range(COUNT)])


async def quiet(service: psutil.Process) -> None:
    """Return once the connections of those who have read are closed."""

    async def clients() -> int:
        own = psutil.Process().net_connections("tcp4")
        return sum(c.status == "ESTABLISHED" and c.raddr.port in ports for c in own if c.raddr)

    ports = {c.laddr.port for c in service.net_connections("tcp4") if c.status == "LISTEN"}
    await until_told(clients, lambda count: count == 0)


def count_of(connection: psycopg.Connection) -> int:
    row = connection.execute(SESSIONS).fetchone()
    connection.commit()
    assert row is not None
    return int(row[0])
