"""Speculative execution: Spark runs a task twice at once, and every row is there once.

Spark starts no second attempt on a host that has the first. So there are two workers, with two
addresses of the loopback.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import eruca
from support import speculating_driver
from support.export_cluster import ExportCluster, command, export_cluster
from support.sent_messages import stored_bodies
from support.standalone_spark import cluster_environment, standalone_spark

pytestmark = pytest.mark.timeout(900)

SENT: Final = 2_000
DRIVER_SECONDS: Final = 400.0
PYTHONPATH: Final = str(Path(speculating_driver.__file__).parents[1])


@pytest.fixture(scope="module")
def cluster() -> Iterator[ExportCluster]:
    with export_cluster() as running, running.client() as client:
        for topic in ("orders", "copies"):
            client.admin.create_topic(topic, queue_count=1)
        with client.producer() as producer:
            producer.send_many([eruca.Message("orders", b"order %d" % n) for n in range(SENT)])
        yield running


def test_a_task_that_runs_twice_at_once_reads_and_writes_each_row_once(
    cluster: ExportCluster, tmp_path: Path
) -> None:
    (tmp_path / "driver").mkdir()
    with standalone_spark(tmp_path, hosts=("127.0.0.1", "127.0.0.2"), cores=1) as spark:
        arguments = [spark.master, cluster.url, cluster.namesrvs, "orders", "copies"]
        with command(
            *arguments,
            str(tmp_path / "driver"),
            program=(sys.executable, speculating_driver.__file__),
            environment={**cluster_environment(), "PYTHONPATH": PYTHONPATH},
        ) as driver:
            output, _ = driver.communicate(timeout=DRIVER_SECONDS)
    assert driver.returncode == 0, output

    seen = json.loads((tmp_path / "driver" / speculating_driver.SEEN).read_text())
    assert seen == {"read": SENT, "distinct": SENT}
    for job in ("reading", "writing"):
        attempts = (tmp_path / "driver" / f"{job}-attempts").read_text().split()
        assert sorted(attempts) == ["0", "1"]
    assert stored_bodies(cluster.url, "copies") == Counter(b"order %d" % n for n in range(SENT))
