"""Exports by Spark, end to end into Parquet, compared with Spark on the same rows elsewhere.

All jobs write with the same options into folders of topic and day, in one warm JVM. Each figure is
the best of several rounds, which alternate. CPU is that of all processes: Spark's, the query
service's and the broker's.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx

from bench.batches import TOPIC
from bench.jdbc_table import TABLE, jdbc_jar, jdbc_table
from bench.load import request, run_load
from bench.machine import cpu_seconds
from bench.read_model import until_read
from bench.report import Report
from bench.spark_messages import QUEUES, fill_topic
from bench.spark_process import HEAP_MIB, Peak, SparkProcess, peak_of, spark_process
from eruca_deploy.cluster import LocalCluster

_ROUNDS: Final = 3
_JDBC_ROUNDS: Final = 5  # the two are close to each other, and a JVM is never quite warm
_SMALL: Final = 5  # divisor of the number of rows, for comparisons with fewer
_PARTS: Final = ("Spark", "query service", "broker")
_TASK_ROWS: Final = (500_000, 25_000)
_SECONDS: Final = 600.0
_NEIGHBOUR_SECONDS: Final = 2.0
_ROOT: Final = Path(__file__).parent.parent


@dataclass(slots=True)
class _Stage:
    """The processes and files on which the jobs run."""

    report: Report
    spark: SparkProcess
    directory: Path
    url: str
    service: int  # process ids
    broker: int
    rows: int

    def options(self, rows: int | None = None, **more: str) -> dict[str, str]:
        """Return the data source's options, perhaps for only the first *rows*."""
        chosen = {"url": self.url, "topic": TOPIC, **more}
        if rows is not None:
            ends = {f'"{TOPIC}/broker-a/{queue}": {rows // QUEUES}' for queue in range(QUEUES)}
            chosen["endingOffsets"] = "{" + ", ".join(sorted(ends)) + "}"
        return chosen

    def export(self, rows: int | None = None, **more: str) -> dict[str, Any]:
        """Return the job that exports into a plain table."""
        options = self.options(rows, **more)
        return {"from": "eruca", "options": options, "to": "parquet", "target": self.path("export")}

    def path(self, name: str) -> str:
        """Return a path for files."""
        return str(self.directory / name)

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds so far, of Spark and of its sources."""
        services = cpu_seconds(self.service), cpu_seconds(self.broker)
        return dict(zip(_PARTS, (self.spark.cpu_seconds(), *services), strict=True))


@dataclass(frozen=True, slots=True)
class _Measured:
    rate: float  # rows per second
    parts: Mapping[str, float]  # microseconds of CPU a row

    @property
    def cpu(self) -> float:
        return _sum_of(self.parts)


def run(report: Report, rows: int) -> None:
    """Measure every row of the table, with *rows* messages."""
    asyncio.run(_run(report, rows))


async def _run(report: Report, rows: int) -> None:
    jar = jdbc_jar()
    with tempfile.TemporaryDirectory(prefix="eruca-bench-") as directory:
        async with LocalCluster(queries=1) as cluster:
            url = cluster.query_urls[0]
            async with httpx.AsyncClient(trust_env=False, timeout=_SECONDS) as http:
                await fill_topic(http, cluster.broker_urls["broker-a"], rows)
                await until_read(http, url)
            service, broker = cluster.pid("query"), cluster.pid("broker-a")
            assert service is not None
            assert broker is not None

            def measure() -> None:
                with spark_process(jar) as spark:
                    stage = _Stage(report, spark, Path(directory), url, service, broker, rows)
                    _measure(stage, has_jdbc=jar is not None)

            await asyncio.to_thread(measure)


def _measure(stage: _Stage, *, has_jdbc: bool) -> None:
    _prepare(stage)
    best = _side_by_side(stage)
    export, copy = best["export"], best["local Parquet"]
    stage.report.ratio("spark-copy", export.rate / copy.rate)
    stage.report.ratio("spark-cpu", export.cpu / copy.cpu)
    stage.report.ratio("spark-json", export.rate / best["local JSON"].rate)
    stage.report.ratio("spark-incremental", best["incremental run"].rate / export.rate)
    _ndjson(stage, export)
    _reading(stage)
    _neighbour(stage)
    if has_jdbc:
        _jdbc(stage)
    else:
        stage.report.figure("JDBC", "skipped: no driver at hand; ERUCA_BENCH_JDBC_JAR names one")
    _memory(stage)


def _prepare(stage: _Stage) -> None:
    """Create the local files, which also warms Spark up."""
    files = {"from": "eruca", "options": stage.options(), "to": "files"}
    seconds = stage.spark.run({**files, "target": stage.path("rows.parquet")})
    stage.report.figure("first export of a fresh JVM", f"{stage.rows / seconds / 1e3:.0f} k rows/s")
    parquet = {"from": "parquet", "source": stage.path("rows.parquet")}
    stage.spark.run({**parquet, "to": "json", "target": stage.path("rows.json")})


def _side_by_side(stage: _Stage) -> dict[str, _Measured]:
    jobs: dict[str, dict[str, Any]] = {
        "local Parquet": {"from": "parquet", "source": stage.path("rows.parquet")},
        "local JSON": {"from": "json", "source": stage.path("rows.json")},
        "export": stage.export(),
        "incremental run": {"options": stage.options(maxRowsPerTrigger=str(stage.rows))},
    }
    best: dict[str, _Measured] = {}
    for number in range(_ROUNDS):
        for name, job in jobs.items():
            where = {"to": "parquet", "target": stage.path("copy")}
            if "from" not in job:
                where = {"to": "lake", "target": stage.path(f"lake-{number}")}
            measured = _measured(stage, {**where, **job}, stage.rows)
            best[name] = _better(best.get(name), measured)
    for name, measured in best.items():
        _tell(stage, f"{name} to Parquet", measured)
    return best


def _measured(stage: _Stage, job: Mapping[str, Any], rows: int) -> _Measured:
    before = stage.cpu()
    seconds = stage.spark.run(job)
    after = stage.cpu()
    return _Measured(
        rows / seconds, {part: (after[part] - before[part]) / rows * 1e6 for part in after}
    )


def _better(one: _Measured | None, other: _Measured) -> _Measured:
    if one is None:
        return other
    return _Measured(max(one.rate, other.rate), min(one.parts, other.parts, key=_sum_of))


def _sum_of(parts: Mapping[str, float]) -> float:
    return sum(parts.values())


def _tell(stage: _Stage, name: str, measured: _Measured) -> None:
    parts = " + ".join(f"{part} {spent:.1f}" for part, spent in measured.parts.items())
    stage.report.figure(name, f"{measured.rate / 1e3:.0f} k rows/s, µs of CPU a row: {parts}")


def _ndjson(stage: _Stage, export: _Measured) -> None:
    """Compare with NDJSON, of fewer rows because it is slow."""
    rows = stage.rows // _SMALL
    urls = [
        f"{stage.url}/v1/exports/{TOPIC}/records?range=broker-a/{queue}:0-{rows // QUEUES}"
        for queue in range(QUEUES)
    ]
    job = {"from": "ndjson", "options": {"urls": " ".join(urls)}, "to": "parquet"}
    measured = None
    for _ in range(_ROUNDS - 1):
        measured = _better(measured, _measured(stage, {**job, "target": stage.path("copy")}, rows))
    assert measured is not None
    _tell(stage, "the same over NDJSON", measured)
    stage.report.ratio("spark-ndjson", export.rate / measured.rate)


def _reading(stage: _Stage) -> None:
    """Measure without writing: the service must not be the bottleneck."""
    job = {"from": "eruca", "options": stage.options(), "to": "nothing"}
    read = None
    streamed = 0.0
    for _ in range(_ROUNDS):
        read = _better(read, _measured(stage, job, stage.rows))
        streamed = max(streamed, _stream_rate(stage))
    assert read is not None
    _tell(stage, "read to nothing, two tasks", read)
    stage.report.figure("one stream to nothing", f"{streamed / 1e3:.0f} k rows/s")
    stage.report.ratio("spark-stream", streamed / read.rate)


def _stream_rate(stage: _Stage) -> float:
    """Return the rows per second of one reader that drops them."""
    rows = stage.rows // QUEUES
    url = f"{stage.url}/v1/exports/{TOPIC}/records?range=broker-a/0:0-{rows}"
    command = [sys.executable, "-m", "bench.read_away", url]
    read = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE)
    return rows / float(read.stdout)


def _neighbour(stage: _Stage) -> None:
    """Measure a small request beside two exports; use the median of several rounds.

    Exports, their readers and the client need more processors than there are, so rounds differ.
    """
    url = f"{stage.url}/v1/exports/{TOPIC}/records?columns=queue_offset,body,properties"
    for queue in range(QUEUES):
        url += f"&range=broker-a/{queue}:0-{stage.rows // QUEUES}"
    idle, busy = [], []
    for _ in range(_ROUNDS):
        idle.append(_small_request_ms(stage))
        readers = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.read_away", url], cwd=_ROOT, stdout=subprocess.DEVNULL
            )
            for _ in range(2)
        ]
        busy.append(_small_request_ms(stage))
        for reader in readers:
            reader.wait()
    alone, beside = median(idle), median(busy)
    stage.report.figure(
        "p99 of a small request", f"{alone:.1f} ms, with two exports {beside:.1f} ms"
    )
    stage.report.ratio("spark-neighbour", beside / alone)


def _small_request_ms(stage: _Stage) -> float:
    port = int(stage.url.rpartition(":")[2])
    load = run_load(port, [request("GET", "/readyz")], connections=1, seconds=_NEIGHBOUR_SECONDS)
    return load.percentile(0.99) / 1e3


def _jdbc(stage: _Stage) -> None:
    """Compare with JDBC in alternation; otherwise the JVM would be warmer for the later one."""
    with jdbc_table(Path(stage.path("rows.parquet"))) as table:
        job = {"from": "jdbc", "to": "parquet", "target": stage.path("copy"), "table": TABLE}
        job |= {"url": table.url, "predicates": table.predicates}  # type: ignore[dict-item]
        best = export = None
        for _ in range(_JDBC_ROUNDS):
            best = _better(best, _measured(stage, job, stage.rows))
            export = _better(export, _measured(stage, stage.export(), stage.rows))
    assert best is not None
    assert export is not None
    # PostgreSQL's own CPU is not included.
    stage.report.figure("Spark's JDBC reader to Parquet", f"{best.rate / 1e3:.0f} k rows/s")
    stage.report.figure("export to Parquet, in turns with it", f"{export.rate / 1e3:.0f} k rows/s")
    stage.report.ratio("spark-jdbc", export.rate / best.rate)


def _memory(stage: _Stage) -> None:
    """Measure the same work on few and on many rows, and in small and large tasks."""
    few, many = stage.rows // _SMALL, stage.rows
    least = _peak(stage, f"{few:,} rows, {_TASK_ROWS[0]:,} a task", few, _TASK_ROWS[0])
    large, small = (
        _peak(stage, f"{many:,} rows, {size:,} a task", many, size) for size in _TASK_ROWS
    )
    stage.report.ratio("spark-memory", large.worker / least.worker)
    stage.report.ratio("spark-workers", large.worker / small.worker)
    stage.report.ratio("spark-jvm", large.jvm - HEAP_MIB)  # the heap itself grows to its limit
    stage.report.ratio("spark-service", large.service - least.service)


def _peak(stage: _Stage, name: str, rows: int, task_rows: int) -> Peak:
    with stage.spark.watched(stage.service) as seen:
        stage.spark.run(stage.export(rows, partitionRows=str(task_rows)))
    peak = peak_of(seen)
    stage.report.figure(
        f"peak memory, {name}",
        f"JVM {peak.jvm:.0f}, Python worker {peak.worker:.0f}, service {peak.service:.0f} MiB",
    )
    return peak
