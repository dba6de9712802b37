"""Exports to tables in S3: Spark's executors write through Hadoop's ``s3a``, the driver commits.

``ERUCA_CRASH_SEED`` repeats a run's decisions.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

import httpx
import pytest

from support.export_service import ExportService
from support.object_stores import BUCKET, REGION, s3_store
from support.spark_s3 import MISSING, s3_settings
from support.table_drivers import DRIVER_SECONDS, exporting, kill_in_a_batch
from support.table_exports import exported, offsets
from support.tables import Kind, LocalTable

SECRET: Final = "a-secret-that-nobody-may-see"
COMMITS: Final = {
    "delta": r"_delta_log/[0-9]*[1-9]\.json<",  # the first one creates the table
    "iceberg": r"/metadata/snap-",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_no_row_is_lost_or_doubled(
    kind: Kind, service: ExportService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver is killed, another one goes on, and the command line without Spark after it."""
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    table = LocalTable(kind, tmp_path, store=f"s3://{BUCKET}/tables")
    service.hold("orders", {0: 6_000, 1: 3_000})
    with s3_store() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        settings = s3_settings(url)

        def commits() -> int:
            listed = httpx.get(f"{url}/{BUCKET}?list-type=2", trust_env=False).text
            return len(re.findall(COMMITS[kind], listed))

        kill_in_a_batch(table, service, commits, Random(seed), settings)
        service.hold("orders", {0: 6_007})
        with exporting(table, service, settings) as driver:
            output, _ = driver.communicate(timeout=DRIVER_SECONDS)
        assert driver.returncode == 0, output
        [line] = [line for line in output.splitlines() if line.startswith("{")]
        assert json.loads(line)["outcome"] == "done"
        assert SECRET not in output
        assert table.offsets() == offsets({0: 6_007, 1: 3_000})

        service.hold("orders", {0: 6_010})
        assert exported(service, table)["rows"] == 3
        assert table.offsets() == offsets({0: 6_010, 1: 3_000})


def test_a_spark_without_the_file_system_is_an_error_with_a_fix(
    service: ExportService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LocalTable("delta", tmp_path, store=f"s3://{BUCKET}/tables")
    service.hold("orders", {0: 10})
    with s3_store() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with exporting(table, service) as driver:
            output, _ = driver.communicate(timeout=DRIVER_SECONDS)

        assert driver.returncode == 1, output
        assert "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:" in output
        assert table.offsets() == []
