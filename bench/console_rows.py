"""The console over many topics and groups: lists, and pages that are open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import httpx

import eruca
from bench.machine import cpu_seconds
from bench.report import Report
from eruca_deploy.cluster import LocalCluster

_TOPICS: Final = 5_000
_GROUPS: Final = 2_000
_AT_ONCE: Final = 32  # that are created at once
_PAGES: Final = 200
_OPEN_SECONDS: Final = 20.0
_REPETITIONS: Final = 15
_LISTS: Final = ("/topics", "/groups", "/topics?q=42", "/overview")


def run(report: Report, _seconds: float) -> None:
    """Measure every row."""
    asyncio.run(_run(report))


async def _run(report: Report) -> None:
    settings = {
        "ERUCA_CONSOLE_STREAMS_MAX": str(2 * _PAGES),
        "ERUCA_CONSOLE_STREAMS_PER_CALLER_MAX": str(2 * _PAGES),
    }
    async with (
        LocalCluster(consoles=1, settings=settings) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
        httpx.AsyncClient(
            base_url=cluster.console_urls[0],
            trust_env=False,
            timeout=60,
            headers={"accept": "text/html"},
            limits=httpx.Limits(max_connections=None),
        ) as browser,
    ):
        await _each(_TOPICS, lambda n: client.admin.create_topic(f"topic-{n:05}", queue_count=1))
        await _each(
            _GROUPS, lambda n: client.admin.groups.create(f"group-{n:05}", start="earliest")
        )
        for path in _LISTS:
            await _list(report, browser, path)
        for path in ("/overview", "/topics"):
            await _open_pages(report, cluster, browser, path)


async def _each(count: int, create: Callable[[int], Awaitable[object]]) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            await create(number)

    await asyncio.gather(*map(one, range(count)))


async def _list(report: Report, browser: httpx.AsyncClient, path: str) -> None:
    times = []
    for _ in range(_REPETITIONS):
        begun_at = time.perf_counter()
        (await browser.get(path)).raise_for_status()
        times.append(1_000 * (time.perf_counter() - begun_at))
    first, *later = times
    later.sort()
    report.figure(
        f"console {path}",
        f"{first:.0f} ms first, then median {later[len(later) // 2]:.0f} ms, "
        f"slowest {later[-1]:.0f} ms; {_TOPICS} topics, {_GROUPS} groups",
    )


async def _open_pages(
    report: Report, cluster: LocalCluster, browser: httpx.AsyncClient, path: str
) -> None:
    """Measure the CPU of console and broker with no page open, and with many."""
    processes = {name: cluster.pid(name) for name in ("console", "broker-a")}
    shares: dict[tuple[str, int], float] = {}
    for pages in (1, _PAGES):
        leaving = asyncio.Event()
        readers = [asyncio.create_task(_read(browser, path, leaving)) for _ in range(pages)]
        await asyncio.sleep(5)  # the streams begin with a page each
        before = {name: cpu_seconds(pid) for name, pid in processes.items() if pid is not None}
        await asyncio.sleep(_OPEN_SECONDS)
        for name, pid in processes.items():
            assert pid is not None
            shares[name, pages] = (cpu_seconds(pid) - before[name]) / _OPEN_SECONDS
        leaving.set()
        await asyncio.gather(*readers)
    report.figure(
        f"console {path}, open pages",
        ", ".join(
            f"{name} {100 * shares[name, 1]:.1f} % of a core with 1, "
            f"{100 * shares[name, _PAGES]:.1f} % with {_PAGES}"
            for name in processes
        ),
    )


async def _read(browser: httpx.AsyncClient, path: str, leaving: asyncio.Event) -> None:
    headers = {"accept": "text/event-stream"}
    async with browser.stream("GET", path, headers=headers) as stream:
        reading = asyncio.create_task(_drain(stream))
        await leaving.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _drain(stream: httpx.Response) -> None:
    async for _ in stream.aiter_raw():
        pass
