"""The transaction checker: checks per second, the lag of its rows, its idle cost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import httpx

from bench.batches import TOPIC, batch_request
from bench.load import run_load
from bench.machine import cpu_seconds
from bench.report import Report
from eruca_deploy.cluster import LocalCluster

_GROUP: Final = "bench"
_CHECKS: Final = 1_000
_PRODUCERS: Final = 4
_TAKEN: Final = 32  # checks per answer to a producer
_SENDERS: Final = 8
_PROBE_SECONDS: Final = 0.05  # between two probes
_NEVER: Final = "3600"  # seconds
_IDLE_SECONDS: Final = 60.0  # several rounds of each loop
_BODY: Final = "x" * 256


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    asyncio.run(_checks(report))
    asyncio.run(_lag(report, seconds))
    asyncio.run(_idle(report))


@asynccontextmanager
async def _cluster(
    **settings: str,
) -> AsyncIterator[tuple[LocalCluster, httpx.AsyncClient, httpx.AsyncClient]]:
    """Yield a cluster, its broker and its checker."""
    prefixed = {f"ERUCA_TXN_CHECKER_{name.upper()}": value for name, value in settings.items()}
    async with (
        LocalCluster(txn_checkers=1, settings=prefixed) as cluster,
        _client(cluster.broker_urls["broker-a"]) as broker,
        _client(cluster.txn_checker_urls[0]) as checker,
    ):
        put = await broker.put(
            f"/topics/{TOPIC}", json={"read_queue_count": 1, "write_queue_count": 1}
        )
        put.raise_for_status()
        yield cluster, broker, checker


def _client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"{url}/v1", trust_env=False, timeout=60)


async def _checks(report: Report) -> None:
    """Measure a backlog of transactions, each checked once, asked, answered and decided."""
    async with _cluster(timeout_seconds="0", interval_seconds=_NEVER, poll_seconds="0.05") as (
        cluster,
        broker,
        checker,
    ):
        await cluster.stop_one("txn-checker")
        await asyncio.gather(*(_begin_some(broker, _CHECKS // _SENDERS) for _ in range(_SENDERS)))
        await cluster.restart("txn-checker")
        done: list[float] = []
        await asyncio.gather(*(_answer(checker, done) for _ in range(_PRODUCERS)))
    seconds = done[-1] - done[0]
    report.figure(
        "checks",
        f"{len(done) / seconds:.0f} per second: granted, asked, answered and decided; "
        f"{_PRODUCERS} producers, one broker, one checker",
    )


async def _begin_some(broker: httpx.AsyncClient, count: int) -> None:
    for _ in range(count):
        await _begin(broker)


async def _begin(broker: httpx.AsyncClient) -> str:
    body = {"topic": TOPIC, "producer_group": _GROUP, "message": {"body": {"text": _BODY}}}
    answer = await broker.post("/transactions", json=body)
    answer.raise_for_status()
    return str(answer.json()["transaction_id"])


async def _answer(checker: httpx.AsyncClient, done: list[float]) -> None:
    """Act as a producer that always commits, until all producers have answered all checks."""

    async def commit(check_id: str) -> None:
        answer = await checker.post(f"/checks/{check_id}", json={"answer": "commit"})
        answer.raise_for_status()
        done.append(time.perf_counter())

    while len(done) < _CHECKS:
        taken = await checker.post(
            f"/producer-groups/{_GROUP}/checks", params={"count_max": _TAKEN, "wait_seconds": 1}
        )
        taken.raise_for_status()
        await asyncio.gather(*(commit(check["check_id"]) for check in taken.json()["checks"]))


async def _lag(report: Report, seconds: float) -> None:
    """Measure the time from a transaction's beginning to its row, under several loads."""
    async with _cluster(timeout_seconds=_NEVER) as (cluster, broker, checker):
        idle = await _probe(broker, checker, seconds)
        _figure(report, "idle", idle)

        sent = [0]
        senders = [asyncio.create_task(_transact(broker, sent)) for _ in range(_SENDERS)]
        busy = await _probe(broker, checker, seconds)
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        _figure(report, f"{sent[0] / seconds:.0f} transactions per second", busy)

        port = urlsplit(cluster.broker_urls["broker-a"]).port
        assert port is not None
        load = threading.Thread(
            target=run_load,
            args=(port, [batch_request(100)]),
            kwargs={"connections": 4, "seconds": seconds},
        )
        load.start()
        flooded = await _probe(broker, checker, seconds)
        load.join()
        _figure(report, "batches of 100 as fast as they go", flooded)


def _figure(report: Report, load: str, lags: list[float]) -> None:
    lags.sort()
    report.figure(
        f"lag of the checker's rows, {load}",
        f"p50 {lags[len(lags) // 2] * 1e3:.0f} ms, max {lags[-1] * 1e3:.0f} ms",
    )


async def _idle(report: Report) -> None:
    """Measure the CPU of a checker with nothing to check and nobody waiting."""
    async with _cluster() as (cluster, _broker, _checker):
        process_id = cluster.pid("txn-checker")
        assert process_id is not None
        cpu_before, began = cpu_seconds(process_id), time.perf_counter()
        await asyncio.sleep(_IDLE_SECONDS)
        used = (cpu_seconds(process_id) - cpu_before) / (time.perf_counter() - began)
    report.figure("an idle checker of one broker", f"{used:.1%} of a core")


async def _probe(
    broker: httpx.AsyncClient, checker: httpx.AsyncClient, seconds: float
) -> list[float]:
    """Return the times until the checker shows each of some new transactions, in seconds."""
    lags: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        transaction_id = await _begin(broker)
        begun_at = time.perf_counter()
        path = f"/transactions/{transaction_id}"
        while (await checker.get(path)).status_code != httpx.codes.OK:  # noqa: ASYNC110  # no news
            await asyncio.sleep(0.001)
        lags.append(time.perf_counter() - begun_at)
        await asyncio.sleep(_PROBE_SECONDS)
    return lags


async def _transact(broker: httpx.AsyncClient, sent: list[int]) -> None:
    while True:
        transaction_id = await _begin(broker)
        answer = await broker.post(
            f"/transactions/{transaction_id}:commit", json={"producer_group": _GROUP}
        )
        answer.raise_for_status()
        sent[0] += 1
