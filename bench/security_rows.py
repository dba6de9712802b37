"""The costs of security: keys and rules, TLS by a proxy and of the broker, single decisions."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from bench.batches import QUEUES, TOPIC, batch_request
from bench.http_rows import WARM
from bench.load import run_load, tls_context
from bench.machine import LOAD_CORE, cpu_seconds
from bench.report import Report
from bench.servers import Server, broker, free_port, running, wait_for
from eruca.contract.access import Right
from eruca.core.access.api_keys import ID_SIZE, SECRET_SIZE, new_key
from eruca_access.gate import KeyHolder, PolicyGate
from eruca_access.needs import on_topic
from eruca_access.sources import FileSource
from eruca_deploy.certificates import Certificates, made_certificates

_TURNS: Final = 5
_CONNECTIONS: Final = 64
_RAMP_SECONDS: Final = 0.1
_BATCH_SECONDS: Final = 0.2  # the segments must not grow into untouched memory
_PRINCIPALS: Final = 1_000
_RULES: Final = 10_000
_PROXY: Final = """\
global
    nbthread 1
defaults
    mode http
    http-reuse never
    timeout connect 5s
    timeout client 120s
    timeout server 120s
frontend front
    bind 127.0.0.1:{port} ssl crt {cert}
    default_backend back
backend back
    server broker unix@{socket} send-proxy-v2
"""


class _Place(NamedTuple):
    """A broker, the port at which clients reach it, and what they send."""

    server: Server
    port: int
    key: str | None
    ca_file: Path | None
    others: tuple[int, ...] = ()  # processes between


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    with TemporaryDirectory(prefix="eruca-bench-") as temporary:
        folder = Path(temporary)
        certificates = made_certificates(folder)
        key = new_key(os.urandom(ID_SIZE), os.urandom(SECRET_SIZE))
        rules = folder / "rules.toml"
        rules.write_text(_rules_of(key))
        with _plain() as plain, _keyed(rules, key) as keyed:
            for name, count, connections in (("single", 1, _CONNECTIONS), ("batch", 1_000, 8)):
                ratio, cost = _compared(plain, keyed, count, connections, seconds)
                messages = cost.rate * count
                report.figure(f"{name} sends with a key", f"{messages:,.0f} messages per CPU-s")
                report.ratio(f"keys-{name}", ratio)
            if shutil.which("haproxy") is None:
                report.figure("TLS by a proxy", "skipped: haproxy is not installed")
            else:
                with _proxied(folder, certificates) as proxied:
                    _report_proxy(report, plain, proxied, seconds)
            with _native(certificates) as native:
                ratio, cost = _compared(plain, native, 1, _CONNECTIONS, seconds)
                report.figure(
                    "single sends, TLS of the broker",
                    f"{cost.rate:,.0f} per CPU-s; {ratio:.2f} of plain",
                )
        _decisions(report, folder)


def _rules_of(key: str) -> str:
    digest = hashlib.sha256(key.encode()).hexdigest()
    return "\n".join(
        [
            "[roles]",
            'administrator = ["user:bench"]',
            "[[keys]]",
            f'id = "{key.split("_")[1]}"',
            'principal = "user:bench"',
            f'sha256 = "{digest}"',
            "",
        ]
    )


@contextmanager
def _plain() -> Iterator[_Place]:
    with broker(**WARM) as server:
        _create_topic(_place := _Place(server, server.port, None, None))
        yield _place


@contextmanager
def _keyed(rules: Path, key: str) -> Iterator[_Place]:
    with broker(environment={"ERUCA_AUTH_FILE": str(rules)}, **WARM) as server:
        _create_topic(place := _Place(server, server.port, key, None))
        yield place


@contextmanager
def _native(certificates: Certificates) -> Iterator[_Place]:
    files: dict[str, Any] = {
        "tls_cert_file": str(certificates.cert_file),
        "tls_key_file": str(certificates.key_file),
    }
    with broker(ca_file=certificates.ca_file, **files, **WARM) as server:
        _create_topic(place := _Place(server, server.port, None, certificates.ca_file))
        yield place


@contextmanager
def _proxied(folder: Path, certificates: Certificates) -> Iterator[_Place]:
    port = free_port()
    combined, config, path = folder / "both.pem", folder / "haproxy.cfg", folder / "b.sock"
    combined.write_bytes(certificates.cert_file.read_bytes() + certificates.key_file.read_bytes())
    combined.chmod(0o600)
    config.write_text(_PROXY.format(port=port, cert=combined, socket=path))
    settings: dict[str, Any] = {
        "listen": f"unix:{path}",
        "listen_peer": "proxy_protocol",
        "advertised_url": f"https://127.0.0.1:{port}",
    }
    url = f"https://127.0.0.1:{port}/readyz"
    with (
        running(["haproxy", "-f", str(config)], {}, LOAD_CORE) as proxy,
        broker(
            environment={"ERUCA_AUTH": "open"},
            ready_url=url,
            ca_file=certificates.ca_file,
            **settings,
            **WARM,
        ) as server,
    ):
        wait_for(url, certificates.ca_file)
        _create_topic(place := _Place(server, port, None, certificates.ca_file, (proxy,)))
        yield place


def _create_topic(place: _Place) -> None:
    scheme = "http" if place.ca_file is None else "https"
    settings = json.dumps({"read_queue_count": QUEUES, "write_queue_count": QUEUES}).encode()
    headers = {"content-type": "application/json"}
    if place.key is not None:
        headers["authorization"] = f"Bearer {place.key}"
    url = f"{scheme}://127.0.0.1:{place.port}/v1/topics/{TOPIC}"
    call = urllib.request.Request(url, settings, headers, method="PUT")
    urllib.request.urlopen(call, context=tls_context(place.ca_file)).close()


class _Cost(NamedTuple):
    """The CPU seconds of some requests."""

    requests: int
    own: float  # of the broker
    whole: float  # of it and the processes between

    @property
    def rate(self) -> float:
        """Requests per CPU second of the broker."""
        return self.requests / self.own


def _cost(place: _Place, count: int, connections: int, seconds: float) -> _Cost:
    request = batch_request(count)
    if place.key is not None:
        line, end, rest = request.partition(b"\r\n")
        request = line + end + f"authorization: Bearer {place.key}\r\n".encode() + rest

    def load(duration: float) -> int:
        result = run_load(
            place.port,
            [request],
            connections=connections,
            seconds=duration,
            core=LOAD_CORE,
            ca_file=place.ca_file,
        )
        assert not result.errors, f"{result.errors} of {result.requests} answers were refusals"
        return result.requests

    def used() -> tuple[float, float]:
        own = cpu_seconds(place.server.process_id)
        return own, own + sum(map(cpu_seconds, place.others))

    load(_RAMP_SECONDS)
    own, whole = used()
    requests = load(seconds)
    own_after, whole_after = used()
    return _Cost(requests, own_after - own, whole_after - whole)


def _compared(
    base: _Place, other: _Place, count: int, connections: int, seconds: float
) -> tuple[float, _Cost]:
    """Return the ratio of *other* to *base* per CPU second, and the cost of *other*.

    They take turns, so that a neighbour disturbs both alike. The turns are added up: the clock of
    CPU seconds is too coarse for one of them.
    """
    turn = seconds / _TURNS
    if count > 1:
        turn = min(turn, _BATCH_SECONDS)
    turns = [
        [_cost(place, count, connections, turn) for place in (base, other)] for _ in range(_TURNS)
    ]
    of_base, of_other = (
        _Cost(*map(sum, zip(*costs, strict=True))) for costs in zip(*turns, strict=True)
    )
    return of_other.rate / of_base.rate, of_other


def _report_proxy(report: Report, plain: _Place, proxied: _Place, seconds: float) -> None:
    for name, count, connections in (("single", 1, _CONNECTIONS), ("batch", 1_000, 8)):
        ratio, cost = _compared(plain, proxied, count, connections, seconds)
        report.figure(
            f"{name} sends, TLS by HAProxy",
            f"{cost.rate:,.0f} requests per CPU-s of the broker, "
            f"{cost.requests / cost.whole:,.0f} of both; {ratio:.2f} of plain",
        )
    report.ratio("tls-proxy", ratio)


def _decisions(report: Report, folder: Path) -> None:
    """Time decisions by many rules: of callers that are new, and of those that are known."""
    path = folder / "many.toml"
    each = _RULES // _PRINCIPALS
    path.write_text(
        "".join(
            f'[[rules]]\nallow = ["produce"]\non = ["topic:t{number}-*"]\n'
            f'to = ["user:u{number % _PRINCIPALS}"]\n'
            for number in range(_RULES)
        )
    )
    gate = asyncio.run(_gate_of(path))
    callers = [KeyHolder(f"user:u{number}", "bench") for number in range(_PRINCIPALS)]
    demands = [
        on_topic(f"t{number + (number % each) * _PRINCIPALS}-orders", Right.PRODUCE)
        for number in range(_PRINCIPALS)
    ]

    def decide_all() -> None:
        for caller, demand in zip(callers, demands, strict=True):
            assert gate.judge(caller, demand, "127.0.0.1").error is None

    new_us, known_us = (_timed_us(decide_all) for _ in range(2))
    report.figure(
        f"a decision by {_RULES} rules, {_PRINCIPALS} callers",
        f"{new_us:.1f} us of a new caller, {known_us:.2f} us of a known one",
    )


async def _gate_of(path: Path) -> PolicyGate:
    return PolicyGate(FileSource(path))


def _timed_us(step: Callable[[], None]) -> float:
    began = time.perf_counter()
    step()
    return (time.perf_counter() - began) / _PRINCIPALS * 1e6
