"""Exports by Spark into tables, compared with the same export into Parquet; and ones with no news.

All three are exactly-once, and write the same rows with the same options, in one warm JVM, in
turns, each time into a new table. Each figure is the best of several rounds. CPU is that of all of
Spark's processes. An export with no news is the whole command, in a process of its own.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import httpx

from bench.batches import TOPIC
from bench.read_model import until_read
from bench.report import Report
from bench.spark_messages import fill_topic
from bench.spark_process import best_of, spark_process
from eruca_deploy.cluster import LocalCluster

_ROUNDS: Final = 3
_SECONDS: Final = 600.0
_ICEBERG: Final = "iceberg:lake.db.table"


def run(report: Report, rows: int) -> None:
    """Measure every row of the table, with *rows* messages."""
    asyncio.run(_run(report, rows))


async def _run(report: Report, rows: int) -> None:
    with tempfile.TemporaryDirectory(prefix="eruca-bench-") as directory:
        async with LocalCluster(queries=1) as cluster:
            url = cluster.query_urls[0]
            async with httpx.AsyncClient(trust_env=False, timeout=_SECONDS) as http:
                await fill_topic(http, cluster.broker_urls["broker-a"], rows)
                await until_read(http, url)
            await asyncio.to_thread(_measure, report, Path(directory), url, rows)


def _measure(report: Report, directory: Path, url: str, rows: int) -> None:
    with spark_process(None) as spark:
        spark.run(_jobs(directory / "warm", url)["Parquet"])
        rounds = (_jobs(directory / str(number), url) for number in range(_ROUNDS))
        best = best_of(spark, rounds, rows)
    for name, (rate, cpu) in best.items():
        report.figure(
            f"export into {name}", f"{rate / 1e3:.0f} k rows/s, {cpu:.1f} µs of CPU a row"
        )
    for name, ratio in (("Delta Lake", "lake-delta"), ("Iceberg", "lake-iceberg")):
        report.ratio(ratio, best[name].rows / best["Parquet"].rows)
    _nothing(report, directory / str(_ROUNDS - 1), url)


def _jobs(directory: Path, url: str) -> dict[str, dict[str, Any]]:
    """Return the exports into new tables in a directory."""
    directory.mkdir(exist_ok=True)
    table = {"to": "table", "options": {"url": url, "topic": TOPIC}, "table_options": {}}
    return {
        "Parquet": {**table, "to": "lake", "target": str(directory / "lake")},
        "Delta Lake": {**table, "target": _delta(directory)},
        "Iceberg": {**table, "target": _ICEBERG, "table_options": _catalogue(directory)},
    }


def _delta(directory: Path) -> str:
    return f"delta:{directory}/delta"


def _catalogue(directory: Path) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalogue.db",
        "warehouse": directory.as_uri(),
    }


def _nothing(report: Report, directory: Path, url: str) -> None:
    """Measure commands that repeat an export, and find nothing new."""
    command = Path(sys.executable).with_name("eruca-spark")
    options = [f"--table-option={name}={value}" for name, value in _catalogue(directory).items()]
    repeated = {
        "Parquet": [f"parquet:{directory}/lake"],
        "Delta Lake": [_delta(directory)],
        "Iceberg": [_ICEBERG, *options],
    }
    seconds = {
        name: _seconds_of(str(command), "export", "--url", url, "--topic", TOPIC, "--to", *words)
        for name, words in repeated.items()
    }
    for name, its in seconds.items():
        report.figure(f"export into {name} that finds nothing new", f"{its:.1f} s")
    report.ratio("lake-nothing", max(seconds.values()))


def _seconds_of(*command: str) -> float:
    """Run a command, and return its duration."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began
