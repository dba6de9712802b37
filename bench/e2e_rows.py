"""End to end through the SDK: producer, broker and consumer, each in its own process.

The broker has a core of its own; the clients run where there is room: three processes, two cores. A
rate counts from the first send until the consumer has the last message.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.batches import TOPIC, batch_request
from bench.e2e_client import WARM_UP
from bench.http_rows import WARM, create_topic, per_cpu_second
from bench.load import request
from bench.machine import cpu_seconds
from bench.report import Report
from bench.servers import MALLOC, broker, name_server, raw_server

_SECONDS_MIN = 3.0  # with less, a 99th percentile is random


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    seconds = max(seconds, _SECONDS_MIN)
    with raw_server() as raw:
        sink = request("POST", "/sink", batch_request(1).split(b"\r\n\r\n", 1)[1])
        _, load = per_cpu_second(raw, [sink], connections=64, seconds=seconds)
    report.figure("raw sink, wall", f"{load.rate:,.0f} requests/s")
    sent = _both("send", seconds, report)
    report.ratio("e2e-send", sent["rate"] / load.rate)
    many = _both("many", seconds, report)
    report.ratio("e2e-many", many["rate"] / load.rate)
    paced = _both("paced", seconds, report, rate=sent["rate"] / 2)
    report.ratio("ack-p99", paced["p99_ms"])


def _both(role: str, seconds: float, report: Report, rate: float = 0) -> dict[str, Any]:
    """Produce and consume at the same time; every message must arrive."""
    with name_server() as namesrv, broker(namesrv_urls=namesrv.url, **WARM) as server:
        create_topic(server, TOPIC, 4)
        consumer = _start("consume", namesrv.url, seconds, rate)
        producer = _start(role, namesrv.url, seconds, rate)
        _wait_until_ready(producer)
        _wait_until_ready(consumer)
        cpu_before = cpu_seconds(server.process_id)
        produced, consumed = _result(producer, "go\n"), _result(consumer)
        broker_cpu = cpu_seconds(server.process_id) - cpu_before
    expected = produced["messages"] + WARM_UP
    assert consumed["messages"] == expected, f"{consumed['messages']} of {expected} arrived"
    produced["rate"] = produced["messages"] / (consumed["ended_at"] - produced["began_at"])
    report.figure(
        f"end to end, {role}",
        f"{produced['rate']:,.0f} messages/s, ack p50 {produced['p50_ms']:.1f} ms, "
        f"p99 {produced['p99_ms']:.1f} ms; all {expected:,} consumed",
    )
    report.figure(
        f"end to end, {role}, messages per CPU-s",
        f"broker {produced['messages'] / broker_cpu:,.0f}, "
        f"producer {produced['per_cpu_second']:,.0f}, consumer {consumed['per_cpu_second']:,.0f}",
    )
    return produced


def _start(role: str, namesrv: str, seconds: float, rate: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.e2e_client", role, namesrv, str(seconds), str(rate)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | MALLOC,
        cwd=Path(__file__).parent.parent,
    )


def _wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError(f"a client ended with {process.wait()}")


def _result(process: subprocess.Popen[str], told: str | None = None) -> dict[str, Any]:
    output, _ = process.communicate(told)
    if process.returncode:
        raise RuntimeError(f"a client ended with {process.returncode}")
    result: dict[str, Any] = json.loads(output)
    return result
