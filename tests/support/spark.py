"""Spark as tests want it: started quickly, and small."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psutil
import pyarrow.parquet as pq

from eruca.exporting.columns import COLUMNS
from eruca_spark.session import LOG_SETTINGS
from support.spark_classes import QUICK_JAVA
from support.waiting import wait_until

LAKE_DDL: Final = ", ".join(
    [*(f"{name} {type_}" for name, type_ in COLUMNS.items()), "dt DATE", "batch INT"]
)
"""The columns of a lake by topic and day."""
SMALL_SPARK: Final = {
    "spark.driver.extraJavaOptions": f"{QUICK_JAVA} -Dlog4j2.configurationFile={LOG_SETTINGS}",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}


def readers(url: str, driver: int | None = None) -> Iterator[psutil.Process]:
    """Yield the processes of a driver's that are connected to *url* at this moment.

    The driver is this process, unless another one is named.
    """
    port = urlsplit(url).port
    for process in psutil.Process(driver).children(recursive=True):
        try:
            connections = process.net_connections("tcp4")
        except psutil.Error:
            continue  # it has just ended
        if any(connection.raddr and connection.raddr.port == port for connection in connections):
            yield process


def kill_reader(url: str, driver: int | None = None) -> int | None:
    """Kill one of the readers, and return which one it was; None: there is none."""
    for process in readers(url, driver):
        process.send_signal(signal.SIGKILL)
        return process.pid
    return None


def planners() -> list[psutil.Process]:
    """Return the processes that plan streams for this process's Spark."""
    name = "pyspark.sql.streaming.python_streaming_source_runner"
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if name in command_line(process)
    ]


def command_line(process: psutil.Process) -> list[str]:
    """Return the words a process was started with; none if it has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def until_none(found: Callable[[], Sequence[object]], *, within_seconds: float = 60.0) -> None:
    """Return once *found* finds nothing; another process has no event to wait for."""
    wait_until(lambda: not found(), within_seconds=within_seconds)


def files_of(lake: Path) -> list[Path]:
    """Return all data files that lie in a lake, finished or not."""
    return sorted(lake.glob("topic=*/**/batch=*/*.parquet"))


def raw_offsets(lake: Path) -> list[tuple[str, str, int, int]]:
    """Return topic, broker, queue and offset of every row in a lake's files, read without Spark.

    Whatever a kill has left behind is among them, as other readers would see it.
    """
    rows = []
    for path in files_of(lake):
        folder = path.relative_to(lake).parts[0]
        topic = folder.removeprefix("topic=").replace("%25", "%")
        table = pq.ParquetFile(path).read(["broker_name", "queue_id", "queue_offset"])
        columns = (table.column(name).to_pylist() for name in table.column_names)
        rows += [(topic, *row) for row in zip(*columns, strict=True)]
    return sorted(rows)
