"""Segments read by Spark without a broker, compared with Parquet files of the same rows.

Both are written as Parquet with the same options, and read to nothing, in one warm JVM, in turns.
Each figure is the best of several rounds. CPU is that of all of Spark's processes.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final

import httpx

from bench.batches import TOPIC
from bench.report import Report
from bench.spark_messages import fill_topic
from bench.spark_process import SparkProcess, best_of, spark_process
from eruca_deploy.cluster import LocalCluster

_SEGMENT_BYTES: Final = 64 * 1024 * 1024  # so that a million messages are several tasks
_ROUNDS: Final = 3
_SECONDS: Final = 600.0


def run(report: Report, rows: int) -> None:
    """Measure every row of the table, with *rows* messages."""
    asyncio.run(_run(report, rows))


async def _run(report: Report, rows: int) -> None:
    with tempfile.TemporaryDirectory(prefix="eruca-bench-") as directory:
        settings = {"ERUCA_BROKER_SEGMENT_BYTES": str(_SEGMENT_BYTES)}
        async with LocalCluster(settings=settings) as cluster:
            async with httpx.AsyncClient(trust_env=False, timeout=_SECONDS) as http:
                await fill_topic(http, cluster.broker_urls["broker-a"], rows)
            await cluster.stop_one("broker-a")
            [broker] = cluster.plan.brokers

            def measure() -> None:
                with spark_process(None) as spark:
                    _measure(report, spark, broker.directory, Path(directory), rows)

            await asyncio.to_thread(measure)


def _measure(report: Report, spark: SparkProcess, store: Path, directory: Path, rows: int) -> None:
    options = {"path": str(store), "topic": TOPIC, "broker": "broker-a"}
    segments = {"from": "segments", "options": options}
    parquet = {"from": "parquet", "source": str(directory / "rows.parquet")}
    spark.run({**segments, "to": "files", "target": str(directory / "rows.parquet")})
    jobs: dict[str, dict[str, Any]] = {
        "segments to Parquet": {**segments, "to": "parquet", "target": str(directory / "copy")},
        "Parquet to Parquet": {**parquet, "to": "parquet", "target": str(directory / "copy")},
        "segments to nothing": {**segments, "to": "nothing"},
        "Parquet to nothing": {**parquet, "to": "nothing"},
    }
    best = best_of(spark, [jobs] * _ROUNDS, rows)
    for name, (rate, cpu) in best.items():
        report.figure(name, f"{rate / 1e3:.0f} k rows/s, {cpu:.1f} µs of CPU a row")
    copied = best["segments to Parquet"].rows / best["Parquet to Parquet"].rows
    report.ratio("segments-copy", copied)
