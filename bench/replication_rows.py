"""Replication: the price of a second copy, and the speed of a replica that catches up."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.batches import batch_request, distinct_batches, request_of
from bench.calls import get_json
from bench.http_rows import create_topic
from bench.load import Load, run_load
from bench.machine import LOAD_CORE
from bench.report import Report
from bench.servers import Server, group_follower, group_master

_MIB: Final = 1024 * 1024
_TURNS: Final = 5
_CATCH_UP_SIZE: Final = 512 * _MIB
_READ_SIZE: Final = _MIB
_DEADLINE_SECONDS: Final = 120.0
_ASK_SECONDS: Final = 0.01


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    _single_sends(report, seconds)
    _batches(report, seconds)
    _catch_up(report)


@contextmanager
def _group(copies: int) -> Iterator[Server]:
    """Run a master, and its replica if there are two copies."""
    with TemporaryDirectory(prefix="eruca-bench-") as temporary:
        directory = Path(temporary)
        with group_master(directory / "master", copies=copies) as master:
            if copies == 1:
                create_topic(master)
                yield master
                return
            with group_follower(master, directory / "replica"):
                create_topic(master)
                yield master


def _compared(loads: list[tuple[Load, Load]]) -> tuple[Load, Load]:
    """Return the pair with the median ratio."""
    return sorted(loads, key=lambda pair: pair[1].rate / pair[0].rate)[len(loads) // 2]


def _measured(requests: list[bytes], *, connections: int, seconds: float) -> tuple[Load, Load]:
    """Send to one copy and to two in turn; return the loads of the median turn."""
    with _group(1) as alone, _group(2) as pair:
        loads = []
        for _ in range(_TURNS):
            one, two = (
                run_load(
                    server.port, requests, connections=connections, seconds=seconds, core=LOAD_CORE
                )
                for server in (alone, pair)
            )
            assert not one.errors + two.errors
            loads.append((one, two))
    return _compared(loads)


def _single_sends(report: Report, seconds: float) -> None:
    one, two = _measured([batch_request(1)], connections=1, seconds=seconds / 2)
    more_ms = (two.percentile(0.5) - one.percentile(0.5)) / 1000
    report.figure(
        "one awaited sender, 1 and 2 copies",
        f"{one.rate:,.0f} and {two.rate:,.0f} messages/s; p50 {one.percentile(0.5):.0f} and "
        f"{two.percentile(0.5):.0f} us, p99 {one.percentile(0.99):.0f} and "
        f"{two.percentile(0.99):.0f} us",
    )
    report.ratio("copies-p50", more_ms)
    report.ratio("copies-sender", two.rate / one.rate)


def _batches(report: Report, seconds: float) -> None:
    batches = [request_of(batch) for batch in distinct_batches(100)]
    one, two = _measured(batches, connections=4, seconds=seconds / 8)
    report.figure(
        "batches of 100, 1 and 2 copies",
        f"{100 * one.rate:,.0f} and {100 * two.rate:,.0f} messages/s",
    )
    report.ratio("copies-batch", two.rate / one.rate)


def _catch_up(report: Report) -> None:
    """Let an empty replica copy a log, and read the same files from the disk, both uncached."""
    batches = [request_of(batch) for batch in distinct_batches(1000)]
    with TemporaryDirectory(prefix="eruca-bench-") as temporary:
        directory = Path(temporary)
        with group_master(directory / "master", copies=1) as master:
            create_topic(master)
            while (end := _status(master)["end"]) < _CATCH_UP_SIZE:
                run_load(master.port, batches, connections=2, seconds=0.2)
            files = sorted((directory / "master" / "commitlog").iterdir())
            read = median(_read_rate(files, end) for _ in range(3))
            _uncache(files)
            with group_follower(master, directory / "replica"):
                rate = _caught_up(master, end)
    report.figure(
        "catching up, and reading the same bytes",
        f"{rate / _MIB:,.0f} and {read / _MIB:,.0f} MiB/s",
    )
    report.ratio("catch-up", rate / read)


def _caught_up(master: Server, end: int) -> float:
    """Return the bytes per second of the replica, from its first acknowledgement on."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    began, first = 0.0, 0
    while time.monotonic() < deadline:
        held = sum(replica["end"] for replica in _status(master)["replicas"])
        if held and not began:
            began, first = time.perf_counter(), held
        if held >= end:
            return (end - first) / (time.perf_counter() - began)
        time.sleep(_ASK_SECONDS)  # a request each time would disturb the master
    raise TimeoutError("the replica did not catch up")


def _read_rate(files: list[Path], end: int) -> float:
    _uncache(files)
    began, left = time.perf_counter(), end
    for path in files:
        with path.open("rb", buffering=0) as file:
            while left > 0 and (read := len(file.read(min(_READ_SIZE, left)))):
                left -= read
    return end / (time.perf_counter() - began)


def _uncache(files: list[Path]) -> None:
    """Let the kernel drop its copies of the files, as far as nobody has them mapped."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _status(server: Server) -> Any:  # noqa: ANN401 - whatever it is
    return get_json(server, "/v1/replication/status")
