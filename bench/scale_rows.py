"""More brokers on one name server: one to four that work, and routes over fifty stand-ins.

The stand-ins are registrations by the name server's own API, as a broker sends them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, NamedTuple

from bench.batches import batch_request
from bench.calls import get_json, send_each
from bench.http_rows import WARM, create_topic, per_cpu_second
from bench.load import Load, request, run_load
from bench.machine import LOAD_CORE, SERVER_CORE, cpu_seconds, private_memory
from bench.report import Report
from bench.servers import Server, broker, name_server
from eruca.contract.routes import BrokerRegistration, TopicRoute
from eruca.contract.topics import TopicConfig

_BROKERS_MAX: Final = 4
_TURNS: Final = 3  # of one broker and of several, so that a neighbour affects both
_CONNECTIONS: Final = 32
_STAND_INS: Final = 50
_TOPICS: Final = 1_000
_QUEUES: Final = 8
_CHANGES: Final = 10
_MIB: Final = 1024 * 1024


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    _working(report, seconds)
    _routes(report, seconds)


def _working(report: Report, seconds: float) -> None:
    """Measure one broker and several in turns: does sharing nothing cost anything?

    A broker's load always comes from the other core.
    """
    names = [f"broker-{number}" for number in range(_BROKERS_MAX)]
    with name_server(expected_brokers=";".join(names)) as namesrv, ExitStack() as running:
        brokers = [
            running.enter_context(
                broker(core=_core(number), name=name, namesrv_urls=namesrv.url, **WARM)
            )
            for number, name in enumerate(names)
        ]
        for server in brokers:
            create_topic(server)
        _together(brokers, seconds / _TURNS)  # to warm up
        before = cpu_seconds(namesrv.process_id), time.perf_counter()
        rates: dict[int, list[float]] = {count: [] for count in range(1, _BROKERS_MAX + 1)}
        for _ in range(_TURNS):
            for count, its in rates.items():
                its.append(_together(brokers[:count], seconds / _TURNS))
        name_server_share = (cpu_seconds(namesrv.process_id) - before[0]) / (
            time.perf_counter() - before[1]
        )
    one = statistics.median(rates.pop(1))
    report.figure("one broker", f"{one:,.0f} single records per CPU-s")
    for count, its in rates.items():
        ratio = statistics.median(its) / one
        report.figure(f"{count} brokers / one", f"{ratio:.2f} per CPU-s")
        if count == 2:
            report.ratio("two-brokers", ratio)
    report.figure("name server meanwhile", f"{name_server_share:.1%} of a core")


def _together(brokers: Sequence[Server], seconds: float) -> float:
    """Send to all of them at the same time; return requests per CPU second of them all."""
    singles = [batch_request(1)]

    def load(number: int) -> Load:
        return run_load(
            brokers[number].port,
            singles,
            connections=_CONNECTIONS,
            seconds=seconds,
            core=_core(number + 1),
        )

    before = sum(cpu_seconds(server.process_id) for server in brokers)
    with ThreadPoolExecutor() as threads:
        loads = list(threads.map(load, range(len(brokers))))
    used = sum(cpu_seconds(server.process_id) for server in brokers) - before
    assert not any(each.errors for each in loads), "a broker has refused messages"
    return sum(each.requests for each in loads) / used


def _core(number: int) -> int:
    return (SERVER_CORE, LOAD_CORE)[number % 2]


class _Spent(NamedTuple):
    """The median of an operation by the clock, and its mean CPU time at the name server."""

    ms: float
    cpu_ms: float

    def __str__(self) -> str:
        return f"{self.ms:.1f} ms, {self.cpu_ms:.1f} ms of the name server's CPU"


def _routes(report: Report, seconds: float) -> None:
    """Measure registrations, changes and reads of 1 000 topics on 50 brokers."""
    title = f"{_TOPICS:,} topics x {_STAND_INS} brokers x {_QUEUES} queues"
    with name_server(settle_seconds="0", expected_brokers="") as namesrv:
        empty = private_memory(namesrv.process_id)
        registered = _each(namesrv, _STAND_INS, lambda n: _register(namesrv, n, _topics(), 1))
        grown = private_memory(namesrv.process_id) - empty
        report.figure(f"registration with topics, {title}", str(registered))
        report.figure("memory of the table", f"{grown / _MIB:.0f} MiB")
        first = _each(namesrv, _TOPICS, lambda n: get_json(namesrv, f"/v1/topics/topic-{n}/route"))
        report.figure("first look-up of a route", str(first))
        rendered = private_memory(namesrv.process_id) - empty
        route = TopicRoute.model_validate(get_json(namesrv, "/v1/topics/topic-0/route"))
        report.figure(
            "memory after a look-up of each",
            f"{rendered / _MIB:.0f} MiB; a route {len(route.model_dump_json()):,} bytes",
        )
        for name, its in {
            "look-up of a route": _gets(*(f"/v1/topics/topic-{n}/route" for n in range(_TOPICS))),
            "heartbeat": [_registration(n, None, 1) for n in range(_STAND_INS)],
            "status": _gets("/v1/status"),
            "list of brokers": _gets("/v1/brokers"),
            "list of topics": _gets("/v1/topics?limit=1000"),
            "metrics": _gets("/metrics"),
        }.items():
            rate, load = per_cpu_second(namesrv, its, connections=8, seconds=seconds)
            report.figure(name, f"{1e6 / rate:,.0f} us of CPU, {load.rate:,.0f}/s")
        changes = _each(namesrv, _CHANGES, lambda n: _register(namesrv, 0, _topics(n + 1), n + 2))
        report.figure("change of one topic at a broker", str(changes))
        returns = _each(namesrv, _CHANGES, lambda n: _restart(namesrv, n))
        report.figure("a broker goes and returns, all routes change twice", str(returns))


def _each(namesrv: Server, count: int, call: Callable[[int], object]) -> _Spent:
    times = []
    before = cpu_seconds(namesrv.process_id)
    for number in range(count):
        began = time.perf_counter()
        call(number)
        times.append(time.perf_counter() - began)
    used = cpu_seconds(namesrv.process_id) - before
    return _Spent(statistics.median(times) * 1e3, used / count * 1e3)


def _restart(namesrv: Server, number: int) -> None:
    send_each(namesrv, [request("DELETE", _path(number))])
    _register(namesrv, number, _topics(), 1)


def _topics(changed: int = 0) -> list[TopicConfig]:
    """Return a broker's topics; those below *changed* cannot be written."""
    return [
        TopicConfig(
            topic=f"topic-{number}",
            read_queue_count=_QUEUES,
            write_queue_count=_QUEUES,
            permission="r" if number < changed else "rw",
        )
        for number in range(_TOPICS)
    ]


def _gets(*paths: str) -> list[bytes]:
    return [request("GET", path) for path in paths]


def _register(namesrv: Server, number: int, topics: list[TopicConfig], data_version: int) -> None:
    """Register a stand-in."""
    send_each(namesrv, [_registration(number, topics, data_version)])


def _registration(number: int, topics: list[TopicConfig] | None, data_version: int) -> bytes:
    """Return the request that registers a stand-in; without topics it is a heartbeat."""
    registration = BrokerRegistration(
        cluster="bench",
        urls={"default": f"http://127.0.0.1:{20_000 + number}"},
        store_host=f"127.0.0.1:{20_000 + number}",
        data_version=data_version,
        topics=topics,
        expiry_seconds=600,
    )
    body = registration.model_dump_json().encode()
    return request("PUT", _path(number), body, "content-type: application/json")


def _path(number: int) -> str:
    return f"/v1/brokers/broker-{number:02d}/0"
