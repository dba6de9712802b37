"""Drivers that export to a table are killed at random moments: no row is lost or doubled.

``ERUCA_CRASH_SEED`` repeats a run's decisions, ``ERUCA_CRASH_ROUNDS`` sets how many drivers are
killed for each kind of table.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

import pytest

from support.export_service import ExportService
from support.table_drivers import DRIVER_SECONDS, exporting, kill_in_a_batch
from support.tables import Kind, LocalTable

ROUNDS: Final = int(os.environ.get("ERUCA_CRASH_ROUNDS") or 1)
ROWS: Final = 6_000
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

    def commits() -> int:
        return len(list(tmp_path.glob(COMMITS[kind])))

    for _ in range(ROUNDS):
        kill_in_a_batch(table, service, commits, random)
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
