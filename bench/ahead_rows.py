"""Producers that send ahead of the answers: one queue, over connections with an added delay."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.batches import TOPIC
from bench.http_rows import WARM, create_topic
from bench.report import Report
from bench.servers import MALLOC, Server, broker, free_port, name_server, running, wait_for

DELAYS_MS: Final = (0, 1, 5)  # added in each direction
_BATCHES: Final = (1, 4)  # under way


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    for delay_ms in DELAYS_MS:
        with _cluster(delay_ms) as namesrv:
            for role in ("many", "paced"):
                one, several = (_produce(role, namesrv, seconds, count) for count in _BATCHES)
                name = f"one queue, {role}, {delay_ms} ms each way"
                report.figure(name, f"{_shown(one)}; {_BATCHES[1]} ahead: {_shown(several)}")
                if delay_ms == DELAYS_MS[-1] and role == "many":
                    report.ratio("ahead", several["rate"] / one["rate"])


@contextmanager
def _cluster(delay_ms: float) -> Iterator[Server]:
    port = free_port()
    settings = WARM | {"advertised_url": f"http://127.0.0.1:{port}"}
    with name_server() as namesrv, broker(namesrv_urls=namesrv.url, **settings) as server:
        link = ["bench.slow_link", str(port), str(server.port), str(delay_ms / 1e3)]
        with running([sys.executable, "-m", *link], MALLOC):
            wait_for(f"http://127.0.0.1:{port}/readyz")
            create_topic(server, TOPIC, 1)
            yield namesrv


def _produce(role: str, namesrv: Server, seconds: float, batches: int) -> dict[str, Any]:
    command = ["-m", "bench.ahead_client", role, namesrv.url, str(seconds), str(batches)]
    output = subprocess.run(
        [sys.executable, *command],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
    ).stdout
    result: dict[str, Any] = json.loads(output)
    return result


def _shown(result: dict[str, Any]) -> str:
    return (
        f"{result['rate']:,.0f} messages/s, p50 {result['p50_ms']:.1f} ms, "
        f"p99 {result['p99_ms']:.1f} ms, {result['per_cpu_second']:,.0f} per CPU-s"
    )
