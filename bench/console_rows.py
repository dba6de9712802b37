"""The console over many topics and groups: lists, and pages that are open.

First those of one caller without rules, then those of many callers with keys of their own.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx

import eruca
from bench.machine import cpu_seconds
from bench.report import Report
from eruca.core.access.first_policy import made_key
from eruca.core.access.policy_text import with_key
from eruca_deploy.cluster import LocalCluster

_TOPICS: Final = 5_000
_GROUPS: Final = 2_000
_AT_ONCE: Final = 32  # that are created at once
_PAGES: Final = 200
_SETTLE_SECONDS: Final = 10.0
_OPEN_SECONDS: Final = 40.0
_REPETITIONS: Final = 15
_LISTS: Final = ("/topics", "/groups", "/topics?q=42", "/overview")


def run(report: Report, _seconds: float) -> None:
    """Measure every row."""
    asyncio.run(_run(report))


async def _run(report: Report) -> None:
    async with _cluster() as (cluster, client), _browser(cluster) as browser:
        await _fill(client)
        for path in _LISTS:
            await _list(report, browser, path)
        for path in ("/overview", "/topics"):
            await _open_pages(report, cluster, [browser] * _PAGES, path, "of one caller")
    with _rules(_PAGES) as keys:
        async with _cluster() as (cluster, client), AsyncExitStack() as stack:
            await _fill(client)
            browsers = [await stack.enter_async_context(_browser(cluster)) for _ in keys]
            for browser, key in zip(browsers, keys, strict=True):
                await _log_in(browser, key)
            for path in ("/overview", "/topics"):
                await _open_pages(report, cluster, browsers, path, "of as many callers")


@asynccontextmanager
async def _cluster() -> AsyncIterator[tuple[LocalCluster, eruca.AsyncClient]]:
    settings = {
        "ERUCA_CONSOLE_SESSIONS_MAX": str(2 * _PAGES),
        "ERUCA_CONSOLE_STREAMS_MAX": str(2 * _PAGES),
        "ERUCA_CONSOLE_STREAMS_PER_CALLER_MAX": str(2 * _PAGES),
    }
    async with (
        LocalCluster(consoles=1, settings=settings) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        yield cluster, client


@asynccontextmanager
async def _browser(cluster: LocalCluster) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=cluster.console_urls[0],
        trust_env=False,
        timeout=60,
        headers={"accept": "text/html"},
        limits=httpx.Limits(max_connections=None),
    ) as browser:
        yield browser


async def _fill(client: eruca.AsyncClient) -> None:
    await _each(_TOPICS, lambda n: client.admin.create_topic(f"topic-{n:05}", queue_count=1))
    await _each(_GROUPS, lambda n: client.admin.groups.create(f"group-{n:05}", start="earliest"))


@contextmanager
def _rules(callers: int) -> Iterator[list[str]]:
    """Have clusters rules for the block; yield the keys of operators, who have one role."""
    now = datetime.now(UTC).replace(microsecond=0)
    operators = [f"user:operator-{number}" for number in range(callers)]
    named = ", ".join(f'"{name}"' for name in operators)
    text = f"""
[roles]
administrator = ["service:all"]
broker = ["service:all"]
operators = [{named}]

[[rules]]
allow = ["query", "consume", "produce"]
on = ["topic:*", "group:*", "cluster"]
to = ["role:operators"]
"""
    keys = []
    for principal in ("service:all", *operators):
        key, stored = made_key(principal, secrets.token_bytes, created_at=now)
        text = with_key(text, stored)
        keys.append(key)
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "rules.toml")
        path.write_text(text)
        os.environ.update(ERUCA_AUTH_FILE=str(path), ERUCA_API_KEY=keys[0])
        try:
            yield keys[1:]
        finally:
            os.environ.clear()
            os.environ.update(before)


async def _log_in(browser: httpx.AsyncClient, key: str) -> None:
    token = re.search(r'name="csrf" value="([^"]+)"', (await browser.get("/login")).text)
    assert token is not None
    form = {"csrf": token[1], "key": key, "next": "/overview"}
    answer = await browser.post("/login", data=form)
    assert answer.status_code == httpx.codes.SEE_OTHER, answer.text


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
    report: Report,
    cluster: LocalCluster,
    browsers: Sequence[httpx.AsyncClient],
    path: str,
    whose: str,
) -> None:
    """Measure the CPU of console and broker with one page open, and with one of each browser."""
    processes = {name: cluster.pid(name) for name in ("console", "broker-a")}
    shares: dict[tuple[str, int], float] = {}
    told: dict[tuple[str, int], int] = {}
    for count in (1, len(browsers)):
        leaving = asyncio.Event()
        events: Counter[str] = Counter()
        readers = [
            asyncio.create_task(_read(one, path, leaving, events)) for one in browsers[:count]
        ]
        await asyncio.sleep(_SETTLE_SECONDS)  # the streams begin with a page each
        before = {name: cpu_seconds(pid) for name, pid in processes.items() if pid is not None}
        events.clear()
        await asyncio.sleep(_OPEN_SECONDS)
        for name, pid in processes.items():
            assert pid is not None
            shares[name, count] = (cpu_seconds(pid) - before[name]) / _OPEN_SECONDS
        for kind in ("live", "failed"):
            told[kind, count] = events[kind]
        leaving.set()
        await asyncio.gather(*readers)
        await asyncio.sleep(_SETTLE_SECONDS)  # until the last pages have been left
    many = len(browsers)
    report.figure(
        f"console {path}, open pages {whose}",
        ", ".join(
            f"{name} {100 * shares[name, 1]:.1f} % of a core with 1, "
            f"{100 * shares[name, many]:.1f} % with {many}"
            for name in processes
        )
        + f"; an update of a page each {_each_seconds(told, 1)} s with 1, "
        f"{_each_seconds(told, many)} s with {many}; {told['failed', many]} failed",
    )


def _each_seconds(told: Mapping[tuple[str, int], int], pages: int) -> str:
    updates = told["live", pages]
    return f"{pages * _OPEN_SECONDS / updates:.1f}" if updates else "?"


async def _read(
    browser: httpx.AsyncClient, path: str, leaving: asyncio.Event, events: Counter[str]
) -> None:
    headers = {"accept": "text/event-stream"}
    async with browser.stream("GET", path, headers=headers) as stream:
        reading = asyncio.create_task(_drain(stream, events))
        await leaving.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _drain(stream: httpx.Response, events: Counter[str]) -> None:
    async for line in stream.aiter_lines():
        if line.startswith("event: "):
            events[line.removeprefix("event: ")] += 1
