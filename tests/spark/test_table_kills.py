"""Drivers that export to a table are killed at random moments: no row is lost or doubled.

``ERUCA_CRASH_SEED`` repeats a run's decisions, ``ERUCA_CRASH_ROUNDS`` sets how many drivers are
killed for each kind of table.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

import pytest

from support.export_cluster import command, kill_tree
from support.export_service import ExportService
from support.spark import SMALL_SPARK
from support.tables import Kind, LocalTable
from support.waiting import wait_until

ROUNDS: Final = int(os.environ.get("ERUCA_CRASH_ROUNDS") or 1)
DRIVER_SECONDS: Final = 300.0
ROWS: Final = 6_000
BATCH_ROWS: Final = 1_000  # so that a kill hits one of many batches
COMMITS: Final = {
    "delta": "table/_delta_log/*[1-9].json",  # the first one creates the table
    "iceberg": "db/table/metadata/snap-*",
}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_no_row_is_lost_or_doubled(kind: Kind, service: ExportService, tmp_path: Path) -> None:
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    random = Random(seed)
    table = LocalTable(kind, tmp_path)
    service.hold("orders", {0: ROWS, 1: ROWS // 2})
    for _ in range(ROUNDS):
        kill_in_a_batch(table, service, random)
    service.hold("orders", {0: ROWS + 7})

    with exporting(table, service) as driver:
        output, _ = driver.communicate(timeout=DRIVER_SECONDS)
    assert driver.returncode == 0, output
    [line] = [line for line in output.splitlines() if line.startswith("{")]
    assert json.loads(line)["outcome"] == "done"
    assert table.offsets() == [
        ("orders", "broker-a", queue, offset)
        for queue, size in ((0, ROWS + 7), (1, ROWS // 2))
        for offset in range(size)
    ]


def kill_in_a_batch(table: LocalTable, service: ExportService, random: Random) -> None:
    """Start a driver, and kill it at some moment after it has committed a batch."""
    commits_before = len(list(table.directory.glob(COMMITS[table.kind])))
    with exporting(table, service) as driver:

        def has_committed() -> bool:
            assert driver.poll() is None, driver.communicate()[0]
            return len(list(table.directory.glob(COMMITS[table.kind]))) > commits_before

        wait_until(has_committed, within_seconds=DRIVER_SECONDS)
        time.sleep(random.uniform(0, 1.0))  # where in the batch it is hit is what is random
        kill_tree(driver.pid)
        assert driver.wait() == -signal.SIGKILL


def exporting(
    table: LocalTable, service: ExportService
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Return a driver that exports what is there."""
    words = ["--to", table.target, "--topic", "orders", "--url", service.url]
    words += ["--rows-per-batch", str(BATCH_ROWS), "--output", "json"]
    for name, value in table.options.items():
        words += ["--table-option", f"{name}={value}"]
    for name, value in SMALL_SPARK.items():
        words += ["--conf", f"{name}={value}"]
    return command("export", *words, "--master", "local[2,4]")
