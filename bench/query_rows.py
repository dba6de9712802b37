"""The read model: its speed on a log, its lag, the time to find a message, and a rebuild.

The raw limit is COPY of a million of the resulting rows into the same PostgreSQL, in one statement.
There are a million messages, or the number given by ``--rows``.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import httpx

import eruca
from bench.batches import TOPIC
from bench.read_model_size import (
    Progress,
    Sample,
    compare_with_copy,
    disk,
    drops,
    look_up,
    pages_to_the_end,
)
from bench.report import Report
from eruca_deploy.cluster import LocalCluster
from eruca_deploy.plan import POSTGRES_DIRECTORY
from eruca_postgres.embedded import EmbeddedServer

_BODY: Final = b"x" * 100
_BATCH: Final = 20_000
_ASKED: Final = 2_000  # different messages that are looked up
_PACED_RATE: Final = 10_000  # messages a second while the lag is measured
_PACE_SECONDS: Final = 0.02
_WARM_SHARE: Final = 0.05  # share of the log that is read before the rate counts


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
            samples = await _fill(report, client, messages)
            await cluster.restart("query")
            rate = await _projection(stage, messages)
            await asyncio.to_thread(compare_with_copy, report, server.url, rate)
            await asyncio.to_thread(disk, report, server.url, messages)
            await pages_to_the_end(report, query, TOPIC, messages)
            await _lag(stage, seconds)
            rows = (await _followed(stage)).rows
            await look_up(report, cluster.query_urls[0], TOPIC, samples, rows=rows, seconds=seconds)
            await _rebuild(stage)
            await drops(report, server.url)


async def _fill(report: Report, client: eruca.AsyncClient, messages: int) -> list[Sample]:
    """Send messages, each with its own key; return a sample of them."""
    samples: list[Sample] = []
    step = max(messages // _ASKED, 1)
    progress = Progress(report, "sending", messages)
    async with client.producer() as producer:
        for first in range(0, messages, _BATCH):
            numbers = range(first, min(first + _BATCH, messages))
            sent = await producer.send_many(
                [eruca.Message(TOPIC, _BODY, tag="AA", keys=[f"key-{n:08d}"]) for n in numbers]
            )
            samples += [
                Sample(sent[n - first].message_id, f"key-{n:08d}") for n in numbers if n % step == 0
            ]
            progress.show(numbers.stop)
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


async def _projection(stage: Stage, messages: int) -> float:
    """Return the rows per second at which the service reads a full log."""
    end = (await stage.client.admin.broker_status("broker-a")).log.max_offset
    begin = now = await _followed(stage)
    progress = Progress(stage.report, "projection", messages)
    while now.log_offset < end:
        await asyncio.sleep(0.05)
        now = await _followed(stage)
        if now.log_offset < _WARM_SHARE * end:
            begin = now
        progress.show(now.rows)
    rate = (now.rows - begin.rows) / (now.at - begin.at)
    bytes_rate = (now.log_offset - begin.log_offset) / (now.at - begin.at)
    stage.report.figure(
        f"projection of {now.rows:,} rows", f"{rate:,.0f} rows/s, {bytes_rate / 2**20:.0f} MiB/s"
    )
    return rate


async def _rebuild(stage: Stage) -> None:
    """Measure a rebuild, beside the rows that answer meanwhile."""
    status = (await stage.query.get("/v1/status")).raise_for_status().json()
    progress = Progress(
        stage.report, "rebuild, bytes of the log", status["followed"][0]["end_offset"]
    )
    (await stage.query.post("/v1/projection:rebuild")).raise_for_status()
    began = time.perf_counter()
    while True:
        status = (await stage.query.get("/v1/status")).raise_for_status().json()
        [log] = status["followed"]
        if log["rebuild"] is None:
            break
        progress.show(log["rebuild"]["log_offset"] or 0)
        await asyncio.sleep(0.05)
    seconds = time.perf_counter() - began
    stage.report.figure(f"rebuild of {log['rows']:,} rows", f"{log['rows'] / seconds:,.0f} rows/s")


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
