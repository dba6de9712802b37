"""A Spark process as the measurements see it: jobs, CPU seconds, memory."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from bench.machine import service_processes

HEAP_MIB: Final = 1024  # of the JVM; small, so that growth would show
_LOOK_SECONDS: Final = 0.25
_MIB: Final = 2**20


class Peak(NamedTuple):
    """The maxima observed, in MiB."""

    jvm: float  # resident
    worker: float  # of the largest Python worker; Spark chooses their number
    service: float  # resident, including its workers


class Rate(NamedTuple):
    """The speed of a job, and its cost in all of Spark's processes."""

    rows: float  # a second
    cpu: float  # microseconds a row


class SparkProcess:
    """Spark, in a process that runs one job after another."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, job: Mapping[str, Any]) -> float:
        """Run a job; return its duration in seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return float(self._said())

    def wait_until_ready(self) -> None:
        """Wait until the session exists."""
        assert self._said() == "ready"

    def _said(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"Spark ended with {self._process.wait()}")
        return line

    def processes(self) -> list[psutil.Process]:
        """Return the driver and all its descendants."""
        driver = psutil.Process(self._process.pid)
        return [driver, *driver.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """Return the user and system time of all processes so far."""
        spent = 0.0
        for process in self.processes():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue  # it has just ended
            spent += times.user + times.system + times.children_user + times.children_system
        return spent

    @contextmanager
    def watched(self, service: int) -> Iterator[list[Peak]]:
        """Sample memory until the block ends; the list then holds the samples."""
        seen: list[Peak] = []
        is_over = threading.Event()

        def look() -> None:
            while not is_over.wait(_LOOK_SECONDS):
                seen.append(self._memory(service))

        thread = threading.Thread(target=look, name="memory", daemon=True)
        thread.start()
        try:
            yield seen
        finally:
            is_over.set()
            thread.join()

    def _memory(self, service: int) -> Peak:
        jvm = worker = 0
        for process in self.processes():
            try:
                if process.name() == "java":
                    jvm += process.memory_info().rss
                elif process.pid != self._process.pid:
                    worker = max(worker, process.memory_info().rss)
            except psutil.Error:
                continue
        of_service = sum(its.memory_info().rss for its in service_processes(service))
        return Peak(jvm / _MIB, worker / _MIB, of_service / _MIB)


def best_of(
    spark: SparkProcess, rounds: Iterable[Mapping[str, Mapping[str, Any]]], rows: int
) -> dict[str, Rate]:
    """Run the jobs of each round in turns; return the best of each, by its name."""
    best: dict[str, Rate] = {}
    for jobs in rounds:
        for name, job in jobs.items():
            before = spark.cpu_seconds()
            seconds = spark.run(job)
            its = Rate(rows / seconds, (spark.cpu_seconds() - before) / rows * 1e6)
            known = best.get(name, its)
            best[name] = Rate(max(known.rows, its.rows), min(known.cpu, its.cpu))
    return best


def peak_of(seen: list[Peak]) -> Peak:
    """Return the maximum of each value."""
    return Peak(*(max(values) for values in zip(*seen, strict=True)))


@contextmanager
def spark_process(jar: Path | None) -> Iterator[SparkProcess]:
    """Yield Spark, with a JDBC driver if there is one."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.spark_driver", str(HEAP_MIB), str(jar or "")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    ) as process:
        spark = SparkProcess(process)
        spark.wait_until_ready()
        try:
            yield spark
        finally:
            assert process.stdin is not None
            process.stdin.close()  # ends the process
