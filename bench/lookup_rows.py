"""Look-ups by key, and reads of resources: at the broker, at the name server, through the SDK.

The raw limit is an answer of fixed size, without anything behind it: by the load generator for a
service, by the SDK's own transport for the SDK.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import psutil
import uvloop

import eruca
from bench.calls import get_json
from bench.http_rows import per_cpu_second
from bench.load import request
from bench.machine import LOAD_CORE, SERVER_CORE
from bench.report import Report
from bench.servers import Server, raw_server
from eruca.aio.http.http1 import Http1Transport
from eruca_deploy.cluster import LocalCluster

_TOPIC: Final = "bench"
_BODY: Final = b"x" * 200
_KEYS: Final = 500
_CONNECTIONS: Final = 8
_FIXED: Final = "/fixed/1000"  # about the size of an answer with one message


class _Services(NamedTuple):
    raw: Server
    broker: Server
    namesrv: Server


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    with raw_server() as raw, TemporaryDirectory(prefix="eruca-bench-") as directory:
        uvloop.run(_measure(report, seconds, raw, Path(directory)))


async def _measure(report: Report, seconds: float, raw: Server, directory: Path) -> None:
    async with (
        LocalCluster(data_dir=directory) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await client.admin.create_topic(_TOPIC, queue_count=4)
        async with client.producer() as producer:
            sent = await producer.send_many(
                [eruca.Message(_TOPIC, _BODY, tag="AA", keys=[f"key-{n}"]) for n in range(_KEYS)]
            )
        [namesrv] = cluster.namesrv_urls
        broker = await client.admin.broker_url("broker-a")
        services = _Services(
            raw,
            _server_of(cluster, "broker-a", broker),
            _server_of(cluster, "namesrv-1", namesrv),
        )
        await asyncio.to_thread(_over_http, report, seconds, services)
        os.sched_setaffinity(0, {LOAD_CORE})
        await _through_the_sdk(report, seconds, raw, client, sent)


def _over_http(report: Report, seconds: float, services: _Services) -> None:
    fixed = _rate(services.raw, [_FIXED], seconds)
    keys = [f"/v1/topics/{_TOPIC}/messages?key=key-{n}" for n in range(_KEYS)]
    [found] = get_json(services.broker, keys[0])["messages"]
    rows = {
        "look-up by key": (services.broker, keys),
        "look-up by log offset": (services.broker, [f"/v1/log/records/{found['log_offset']}"]),
        "settings of a topic": (services.broker, [f"/v1/topics/{_TOPIC}"]),
        "offsets of queues": (services.broker, [f"/v1/topics/{_TOPIC}/queues"]),
        "status of a broker": (services.broker, ["/v1/status"]),
        "route": (services.namesrv, [f"/v1/topics/{_TOPIC}/route"]),
    }
    rates = {name: _rate(server, paths, seconds) for name, (server, paths) in rows.items()}
    for name, rate in rates.items():
        report.figure(name, f"{1e6 / rate:.0f} us of CPU")
    report.ratio("look-up", rates["look-up by key"] / fixed)
    report.ratio("read", rates["settings of a topic"] / fixed)


async def _through_the_sdk(
    report: Report,
    seconds: float,
    raw: Server,
    client: eruca.AsyncClient,
    sent: Sequence[eruca.SendResult],
) -> None:
    transport = Http1Transport()
    fixed, _ = await _awaited(
        lambda _: transport.request("GET", raw.url, _FIXED, timeout=5), seconds
    )
    await transport.close()
    by_key, keys_rate = await _awaited(
        lambda n: client.admin.messages_by_key(_TOPIC, f"key-{n % _KEYS}"), seconds
    )
    by_id, ids_rate = await _awaited(
        lambda n: client.admin.message_by_offset_id(sent[n % _KEYS].offset_message_id), seconds
    )
    report.figure(
        "one look-up after the other by the SDK",
        f"{keys_rate:,.0f}/s, {1e6 / by_key:.0f} us of its CPU;"
        f" by id {ids_rate:,.0f}/s, {1e6 / by_id:.0f} us",
    )
    report.ratio("sdk-look-up", by_key / fixed)


def _rate(server: Server, paths: list[str], seconds: float) -> float:
    """Return requests per CPU second of *server*."""
    requests = [request("GET", path) for path in paths]
    rate, _ = per_cpu_second(server, requests, connections=_CONNECTIONS, seconds=seconds)
    return rate


async def _awaited(call: Callable[[int], Awaitable[object]], seconds: float) -> tuple[float, float]:
    """Return calls per CPU second of this process and per second, one after the other."""
    for number in range(_KEYS):
        await call(number)
    began, cpu, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() < began + seconds:
        await call(count)
        count += 1
    return count / (time.process_time() - cpu), count / (time.perf_counter() - began)


def _server_of(cluster: LocalCluster, name: str, url: str) -> Server:
    process_id, port = cluster.pid(name), urlsplit(url).port
    assert process_id is not None
    assert port is not None
    psutil.Process(process_id).cpu_affinity([SERVER_CORE])
    return Server(process_id, port)
