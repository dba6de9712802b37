"""Drivers of Spark that export to a table, and are killed at some moment."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from random import Random
from typing import Final

from support.export_cluster import command, kill_tree
from support.export_service import ExportService
from support.spark import SMALL_SPARK
from support.tables import LocalTable
from support.waiting import wait_until

DRIVER_SECONDS: Final = 300.0
BATCH_ROWS: Final = 1_000  # so that a kill hits one of many batches


def exporting(
    table: LocalTable, service: ExportService, conf: Mapping[str, str] | None = None
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Return a driver that exports what is there; *conf*: Spark's settings."""
    words = ["--to", table.target, "--topic", "orders", "--url", service.url]
    words += ["--rows-per-batch", str(BATCH_ROWS), "--output", "json"]
    for name, value in table.options.items():
        words += ["--table-option", f"{name}={value}"]
    for name, value in {**SMALL_SPARK, **(conf or {})}.items():
        words += ["--conf", f"{name}={value}"]
    return command("export", *words, "--master", "local[2,4]")


def kill_in_a_batch(
    table: LocalTable,
    service: ExportService,
    commits: Callable[[], int],
    random: Random,
    conf: Mapping[str, str] | None = None,
) -> None:
    """Start a driver, and kill it at some moment after it has committed a batch.

    Args:
        table: The table.
        service: Serves its messages.
        commits: Returns the number of the table's commits, even if there is no table yet.
        random: Chooses the moment.
        conf: Spark's settings.
    """
    commits_before = commits()
    with exporting(table, service, conf) as driver:

        def has_committed() -> bool:
            assert driver.poll() is None, driver.communicate()[0]
            return commits() > commits_before

        wait_until(has_committed, within_seconds=DRIVER_SECONDS)
        time.sleep(random.uniform(0, 1.0))  # where in the batch it is hit is what is random
        kill_tree(driver.pid)
        assert driver.wait() == -signal.SIGKILL
