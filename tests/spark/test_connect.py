"""Topics through Spark Connect: the client has no JVM, and the server may lack the source."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import eruca
from eruca_spark.workers import worker_python
from support import connect_driver
from support.export_cluster import ExportCluster, command, export_cluster
from support.sent_messages import stored_bodies
from support.spark_connect import client_packages, connect_server
from support.standalone_spark import python_without_the_source

pytestmark = pytest.mark.timeout(900)

SENT: Final = 2_000
CLIENT_SECONDS: Final = 400.0
TESTS: Final = Path(connect_driver.__file__).parents[1]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ExportCluster]:
    with export_cluster() as running, running.client() as client:
        client.admin.create_topic("orders", queue_count=2)
        with client.producer() as producer:
            producer.send_many([eruca.Message("orders", b"order %04d" % n) for n in range(SENT)])
        yield running


@pytest.mark.parametrize("registers", [False, True], ids=["installed", "registered"])
def test_a_client_of_connect_reads_and_writes_topics(
    cluster: ExportCluster, tmp_path: Path, registers: bool
) -> None:
    """A server without the source gets it from the client, with each query."""
    target = "copies-registered" if registers else "copies-installed"
    python = str(python_without_the_source(tmp_path)) if registers else worker_python({})
    with cluster.client() as client:
        client.admin.create_topic(target, queue_count=2)
        with connect_server(tmp_path, python) as remote:
            seen = seen_by_client(cluster, remote, target, tmp_path, registers=registers)
        queues = client.admin.queues("orders")
        stored = stored_bodies(cluster.url, target)

    assert seen["kind"] == "pyspark.sql.connect.session"
    assert (seen["rows"], seen["joined"], seen["last"]) == (SENT, SENT, "order 1999")
    assert seen["view"] == sum(
        held.max_offset for queue, held in queues.items() if queue.queue_id == 0
    )
    assert seen["batches"] == [3, 3]
    assert stored == Counter(b"made %d" % n for n in range(500)) + Counter(
        b"order %04d" % n for n in range(SENT)
    )
    assert "no progress for 1 s (option retrySeconds)" in seen["errors"][0]
    assert "unknown option 'topc'; valid options: url, topic" in seen["errors"][1]


def seen_by_client(
    cluster: ExportCluster, remote: str, target: str, directory: Path, *, registers: bool
) -> dict[str, Any]:
    arguments = [remote, cluster.url, cluster.namesrvs, "orders", target, str(directory)]
    with command(
        *arguments,
        *(["--registers"] if registers else []),
        program=(sys.executable, connect_driver.__file__),
        environment={"PYTHONPATH": f"{TESTS}{os.pathsep}{client_packages()}"},
    ) as driver:
        output, _ = driver.communicate(timeout=CLIENT_SECONDS)
    server = (directory / "connect-server.txt").read_text()[-4_000:]
    assert driver.returncode == 0, output + server
    seen: dict[str, Any] = json.loads((directory / connect_driver.SEEN).read_text())
    return seen
