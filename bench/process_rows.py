"""A broker as a process: start-up, memory idle and under ten gibibytes of traffic."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.batches import TOPIC, batch_request
from bench.http_rows import create_topic
from bench.load import request, run_load
from bench.machine import private_memory
from bench.report import Report
from bench.servers import broker
from eruca.contract.wire import RECORDS_MEDIA_TYPE

_TRAFFIC = 10 * 1024**3  # bytes
_STEP_SECONDS = 2.0
_MIB = 1024 * 1024


def run(report: Report, _seconds: float) -> None:
    """Measure every row."""
    _start_up(report)
    _memory(report)


def _start_up(report: Report) -> None:
    with TemporaryDirectory(prefix="eruca-bench-") as directory:
        began = time.perf_counter()
        with broker(Path(directory) / "store") as server:
            report.figure("start to ready, empty store", f"{time.perf_counter() - began:.2f} s")
            idle = private_memory(server.process_id) / _MIB
            report.figure("memory of an idle broker", f"{idle:.0f} MiB")


def _memory(report: Report) -> None:
    """Send and read ten gibibytes; private memory must not grow with them."""
    with broker() as server:
        create_topic(server)
        sends = [batch_request(1000)]
        samples = []
        written = 0
        while written < _TRAFFIC:
            load = run_load(server.port, sends, connections=4, seconds=_STEP_SECONDS)
            written += load.requests * len(sends[0])
            offset = max(load.requests * 1000 - 100_000, 0)
            path = f"/v1/topics/{TOPIC}/queues/0/messages?count_max=2048&bytes_max=4000000"
            pulls = [
                request("GET", f"{path}&offset={at}", b"", f"accept: {RECORDS_MEDIA_TYPE}")
                for at in range(offset, offset + 80_000, 2_000)
            ]
            run_load(server.port, pulls, connections=4, seconds=_STEP_SECONDS / 4)
            samples.append(private_memory(server.process_id) / _MIB)
    report.figure(
        "private memory over 10 GiB",
        f"{samples[0]:.0f} MiB at first, {max(samples):.0f} at most, {samples[-1]:.0f} at last",
    )
