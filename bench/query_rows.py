"""The read model: its speed on a log, its lag, and the time to find a message.

The raw limit is COPY of the resulting rows into the same PostgreSQL, in one statement. There are a
million messages, or the number given by ``--rows``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx
import psycopg

import eruca
from bench.batches import TOPIC
from bench.load import request, run_load
from bench.report import Report
from eruca_deploy.cluster import LocalCluster
from eruca_deploy.plan import POSTGRES_DIRECTORY
from eruca_postgres.embedded import EmbeddedServer
from eruca_query.projection.tables import SCHEMA

_BODY: Final = b"x" * 100
_BATCH: Final = 20_000
_ASKED: Final = 2_000  # different messages that are looked up
_PACED_RATE: Final = 10_000  # messages a second while the lag is measured
_PACE_SECONDS: Final = 0.02
_ALL_ROWS: Final = "COPY (SELECT * FROM messages) TO STDOUT (FORMAT binary)"
_WARM_SHARE: Final = 0.05  # share of the log that is read before the rate counts


class Sample(NamedTuple):
    """A message that will be looked up."""

    message_id: str
    key: str


class Stage(NamedTuple):
    """The cluster under test and its clients."""

    cluster: LocalCluster
    client: eruca.AsyncClient
    query: httpx.AsyncClient
    report: Report


def run(report: Report, seconds: float, *, rows: int) -> None:
    """Measure every row, with *rows* messages."""
    with TemporaryDirectory(prefix="eruca-bench-") as directory:
        asyncio.run(_measure(report, seconds, rows, Path(directory)))


async def _measure(report: Report, seconds: float, messages: int, directory: Path) -> None:
    async with (
        LocalCluster(queries=1, data_dir=directory) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
        httpx.AsyncClient(base_url=cluster.query_urls[0], trust_env=False, timeout=60) as query,
    ):
        stage = Stage(cluster, client, query, report)
        # A second user keeps PostgreSQL running while the service is stopped.
        with EmbeddedServer(directory / POSTGRES_DIRECTORY) as server:
            await client.admin.create_topic(TOPIC, queue_count=4)
            await cluster.stop_one("query")
            samples = await _fill(client, messages)
            await cluster.restart("query")
            rate = await _projection(stage)
            await asyncio.to_thread(_copy, report, server.url, rate)
            await _lag(stage, seconds)
            await _look_up(stage, samples, seconds)


async def _fill(client: eruca.AsyncClient, messages: int) -> list[Sample]:
    """Send messages, each with its own key; return a sample of them."""
    samples: list[Sample] = []
    step = max(messages // _ASKED, 1)
    async with client.producer() as producer:
        for first in range(0, messages, _BATCH):
            numbers = range(first, min(first + _BATCH, messages))
            sent = await producer.send_many(
                [eruca.Message(TOPIC, _BODY, tag="AA", keys=[f"key-{n:08d}"]) for n in numbers]
            )
            samples += [
                Sample(sent[n - first].message_id, f"key-{n:08d}") for n in numbers if n % step == 0
            ]
    return samples


class _Followed(NamedTuple):
    """The progress in the log, and the time of the observation."""

    at: float
    rows: int
    log_offset: int


async def _followed(stage: Stage) -> _Followed:
    status = (await stage.query.get("/v1/status")).raise_for_status().json()
    [log] = status["followed"]
    return _Followed(time.perf_counter(), log["rows"], log["log_offset"] or 0)


async def _projection(stage: Stage) -> float:
    """Return the rows per second at which the service reads a full log."""
    end = (await stage.client.admin.broker_status("broker-a")).log.max_offset
    begin = now = await _followed(stage)
    while now.log_offset < end:
        await asyncio.sleep(0.05)
        now = await _followed(stage)
        if now.log_offset < _WARM_SHARE * end:
            begin = now
    rate = (now.rows - begin.rows) / (now.at - begin.at)
    bytes_rate = (now.log_offset - begin.log_offset) / (now.at - begin.at)
    stage.report.figure(
        f"projection of {now.rows:,} rows", f"{rate:,.0f} rows/s, {bytes_rate / 2**20:.0f} MiB/s"
    )
    return rate


def _copy(report: Report, url: str, rate: float) -> None:
    """Compare with COPY of the same rows: into a bare table, and into one with the same indexes."""
    with psycopg.connect(url, options=f"-c search_path={SCHEMA}", autocommit=True) as connection:
        with connection.cursor().copy(_ALL_ROWS) as copied:
            pieces = [bytes(piece) for piece in copied]
        connection.execute("CREATE TABLE plain (LIKE messages)")
        connection.execute("CREATE TABLE indexed (LIKE messages INCLUDING INDEXES)")
        plain = _copy_rate(connection, "plain", pieces)
        indexed = _copy_rate(connection, "indexed", pieces)
        connection.execute("DROP TABLE plain, indexed")
    report.figure("COPY of the same rows, no index", f"{plain:,.0f} rows/s")
    report.figure("COPY of the same rows, the same indexes", f"{indexed:,.0f} rows/s")
    report.ratio("projection", rate / plain)
    report.ratio("projection-indexed", rate / indexed)


def _copy_rate(
    connection: psycopg.Connection[tuple[object, ...]], table: str, pieces: Sequence[bytes]
) -> float:
    began = time.perf_counter()
    cursor = connection.cursor()
    with cursor.copy(f"COPY {table} FROM STDIN (FORMAT binary)") as copied:
        for piece in pieces:
            copied.write(piece)
    return cursor.rowcount / (time.perf_counter() - began)


async def _lag(stage: Stage, seconds: float) -> None:
    """Measure the time from a message's acknowledgement to its row, idle and under load."""
    await _figure_lag(stage, "idle", seconds)
    is_over = asyncio.Event()
    sending = asyncio.create_task(_send_paced(stage.client, is_over))
    await _figure_lag(stage, f"{_PACED_RATE:,} messages a second", seconds)
    is_over.set()
    await sending


async def _figure_lag(stage: Stage, load: str, seconds: float) -> None:
    lags: list[float] = []
    end = time.perf_counter() + seconds
    async with stage.client.producer() as producer:
        while time.perf_counter() < end:
            sent = await producer.send(eruca.Message(TOPIC, _BODY))
            sent_at = time.perf_counter()
            while (now := await _followed(stage)).log_offset <= sent.log_offset:  # noqa: ASYNC110  # no news
                await asyncio.sleep(0.001)
            lags.append(now.at - sent_at)
    lags.sort()
    stage.report.figure(
        f"lag of the read model, {load}",
        f"p50 {lags[len(lags) // 2] * 1e3:.0f} ms, max {lags[-1] * 1e3:.0f} ms",
    )


async def _send_paced(client: eruca.AsyncClient, is_over: asyncio.Event) -> None:
    count = round(_PACED_RATE * _PACE_SECONDS)
    loop = asyncio.get_running_loop()
    async with client.producer() as producer:
        due = loop.time()
        while not is_over.is_set():
            await producer.send_many([eruca.Message(TOPIC, _BODY) for _ in range(count)])
            due += _PACE_SECONDS
            await asyncio.sleep(max(due - loop.time(), 0))


async def _look_up(stage: Stage, samples: Sequence[Sample], seconds: float) -> None:
    """Measure one client's look-ups: by id with the body, and by key."""
    port = urlsplit(stage.cluster.query_urls[0]).port
    assert port is not None
    paths = {
        "id": [f"/v1/messages/{sample.message_id}" for sample in samples],
        "key": [f"/v1/messages?topic={TOPIC}&key={sample.key}" for sample in samples],
    }
    rows = (await _followed(stage)).rows
    for what, targets in paths.items():
        requests = [request("GET", target) for target in targets]
        load = await asyncio.to_thread(run_load, port, requests, connections=1, seconds=seconds)
        assert load.errors == 0, f"{load.errors} of {load.requests} answers are no 2xx"
        stage.report.figure(
            f"look-up by {what} among {rows:,}",
            f"p50 {load.percentile(0.5) / 1e3:.1f} ms, p99 {load.percentile(0.99) / 1e3:.1f} ms",
        )
