"""The SDK's own HTTP client against aiohttp, 64 requests in flight, by the client's CPU time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import aiohttp
import uvloop

from bench.report import Report
from bench.servers import Server, raw_server
from eruca.aio.http.http1 import Http1Transport

_IN_FLIGHT = 64
_BODY = bytes(1024)


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    with raw_server() as raw:
        own = uvloop.run(_own(raw, seconds))
        other = uvloop.run(_aiohttp(raw, seconds))
    report.figure("SDK client", f"{own:,.0f} requests per CPU-s; aiohttp {other:,.0f}")
    report.ratio("client", own / other)


async def _own(raw: Server, seconds: float) -> float:
    transport = Http1Transport(connections_max=_IN_FLIGHT)

    async def call() -> None:
        answer = await transport.request("POST", raw.url, "/sink", body=[_BODY], timeout=30)
        assert answer.status == 200

    rate = await _rate(call, seconds)
    await transport.close()
    return rate


async def _aiohttp(raw: Server, seconds: float) -> float:
    connector = aiohttp.TCPConnector(limit=_IN_FLIGHT)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def call() -> None:
            async with session.post(f"{raw.url}/sink", data=_BODY) as answer:
                await answer.read()

        return await _rate(call, seconds)


async def _rate(call: Callable[[], Awaitable[None]], seconds: float) -> float:
    """Return calls per CPU second of this process."""
    await asyncio.gather(*(call() for _ in range(_IN_FLIGHT)))
    ends_at = time.perf_counter() + seconds

    async def work() -> int:
        done = 0
        while time.perf_counter() < ends_at:
            await call()
            done += 1
        return done

    before = time.process_time()
    total = sum(await asyncio.gather(*(work() for _ in range(_IN_FLIGHT))))
    return total / (time.process_time() - before)
