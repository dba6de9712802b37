"""The export on Spark's own cluster: a master and a worker on the loopback.

Executors run a Python that lacks the data source, as a cluster's machines do, from a folder of
theirs: what they run has been sent to them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import psutil
import pytest
from pyarrow.dataset import dataset

import eruca
import eruca_spark
from support.export_cluster import ExportCluster, command, export_cluster, kill_tree
from support.spark import command_line, raw_offsets
from support.spark_classes import QUICK_JAVA
from support.standalone_spark import (
    SPARK_SUBMIT,
    StandaloneSpark,
    cluster_environment,
    python_without_the_source,
    standalone_spark,
)
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(900)

TOPIC: Final = "orders"
SENT: Final = 6_000
LARGE: Final = "parcels"
LARGE_SENT: Final = 20_000
COPY: Final = "parcels-2"
DRIVER_SECONDS: Final = 400.0
SMALL: Final = {
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ExportCluster]:
    """Run brokers and a query service, with messages in four queues."""
    with export_cluster() as running, running.client() as client:
        client.admin.create_topic(TOPIC, queue_count=2)
        with client.producer() as producer:
            producer.send_many([eruca.Message(TOPIC, b"order %d" % n) for n in range(SENT)])
        yield running


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    with standalone_spark(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture
def stored(cluster: ExportCluster) -> list[tuple[str, str, int, int]]:
    """Return every message's place."""
    with cluster.client() as client:
        queues = client.admin.queues(TOPIC)
    return sorted(
        (TOPIC, queue.broker_name, queue.queue_id, offset)
        for queue, held in queues.items()
        for offset in range(held.max_offset)
    )


def settings_on(master: str) -> list[str]:
    """Return the options of a driver whose executors *master* starts."""
    on_cluster = ["--master", master]
    for name, value in SMALL.items():
        on_cluster += ["--conf", f"{name}={value}"]
    for jvm in ("driver", "executor"):
        on_cluster += ["--conf", f"spark.{jvm}.extraJavaOptions={QUICK_JAVA}"]
    return on_cluster


def exporting(
    cluster: ExportCluster,
    master: str,
    directory: Path,
    *more: str,
    is_submitted: bool = False,
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Return a driver that exports into ``lake``, started from the root folder."""
    python = python_without_the_source(directory)
    lacks = subprocess.run(
        [python, "-c", "import pyarrow, pyspark_eruca"], capture_output=True, check=False
    )
    assert b"No module named 'pyspark_eruca'" in lacks.stderr
    on_cluster = settings_on(master)
    export = ["export", str(directory / "lake"), "--topic", TOPIC, "--url", cluster.url]
    export += ["--rows-per-batch", "4000", "--option", "partitionRows=1000", *more]
    environment = {**cluster_environment(), "PYSPARK_PYTHON": str(python)}
    if not is_submitted:
        return command(*export, *on_cluster, environment=environment, directory=Path("/"))
    script = Path(eruca_spark.__file__).with_name("__main__.py")
    return command(
        *export,
        environment={**environment, "PYSPARK_DRIVER_PYTHON": "python3"},
        directory=Path("/"),
        program=(str(SPARK_SUBMIT), *on_cluster, str(script)),
    )


def executor_of(standalone: StandaloneSpark, driver: subprocess.Popen[str]) -> int:
    """Return the process id of an executor that has begun to run Python."""

    def found() -> int | None:
        assert driver.poll() is None, driver.communicate()[0]
        for process in psutil.Process(standalone.worker_pid).children():
            if any("pyspark.daemon" in command_line(child) for child in process.children()):
                return process.pid
        return None

    return wait_until(found, within_seconds=DRIVER_SECONDS)


@pytest.mark.parametrize("is_submitted", [False, True], ids=["eruca-spark", "spark-submit"])
def test_every_message_is_exported_once_by_executors_that_lack_the_source(
    cluster: ExportCluster,
    standalone: StandaloneSpark,
    stored: list[tuple[str, str, int, int]],
    tmp_path: Path,
    is_submitted: bool,
) -> None:
    with exporting(cluster, standalone.master, tmp_path, is_submitted=is_submitted) as driver:
        output, _ = driver.communicate(timeout=DRIVER_SECONDS)

    assert driver.returncode == 0, output
    assert f"{TOPIC}: {SENT:,} messages" in output
    assert raw_offsets(tmp_path / "lake") == stored
    assert list(standalone.worker_dir.glob("app-*/*/stderr")), "no executor of the worker's"


def test_executors_that_lack_the_decoders_decode_bodies(
    cluster: ExportCluster, standalone: StandaloneSpark, tmp_path: Path
) -> None:
    """A letter is an integer of Avro: ``order 1234`` is a record of ten, ``order 7`` is none."""
    fields = [{"name": f"letter{n}", "type": "int"} for n in range(len("order 1234"))]
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    with exporting(cluster, standalone.master, tmp_path, "--body-schema", str(schema)) as driver:
        output, _ = driver.communicate(timeout=DRIVER_SECONDS)

    assert driver.returncode == 0, output
    assert "rejected, their bodies do not fit, see _rejected: 1,000 messages" in output
    typed = dataset(str(tmp_path / "lake"), format="parquet", partitioning="hive").to_table()
    assert typed.num_rows == SENT - 1_000
    assert set(typed["body_letter0"].to_pylist()) == {-56}  # the letter o


def test_an_executor_that_is_killed_is_replaced_and_no_row_is_lost_or_doubled(
    cluster: ExportCluster,
    standalone: StandaloneSpark,
    stored: list[tuple[str, str, int, int]],
    tmp_path: Path,
) -> None:
    with exporting(cluster, standalone.master, tmp_path) as driver:
        kill_tree(executor_of(standalone, driver))
        output, _ = driver.communicate(timeout=DRIVER_SECONDS)

    assert driver.returncode == 0, output
    assert raw_offsets(tmp_path / "lake") == stored


def test_a_replay_whose_executor_is_killed_sends_no_message_twice(
    cluster: ExportCluster, standalone: StandaloneSpark, tmp_path: Path
) -> None:
    """An executor's sorted rows are lost with it; Spark would rerun the stage with new attempts."""
    with cluster.client() as client:
        for topic in (LARGE, COPY):
            client.admin.create_topic(topic, queue_count=2)
        with client.producer() as producer:
            producer.send_many([eruca.Message(LARGE, bytes(2_000))] * LARGE_SENT)

        def copied() -> int:
            return sum(held.max_offset for held in client.admin.queues(COPY).values())

        def replaying() -> AbstractContextManager[subprocess.Popen[str]]:
            replay = ["replay", "--to", COPY, "--name", "again", "--topic", LARGE]
            environment = {
                **cluster_environment(),
                "PYSPARK_PYTHON": str(python_without_the_source(tmp_path)),
            }
            return command(
                *replay,
                *("--url", cluster.url, "--namesrv", cluster.namesrvs),
                *settings_on(standalone.master),
                environment=environment,
                directory=Path("/"),
            )

        with replaying() as driver:
            executor = executor_of(standalone, driver)
            wait_until(copied, within_seconds=DRIVER_SECONDS)
            kill_tree(executor)
            output, _ = driver.communicate(timeout=DRIVER_SECONDS)
        sent = copied()
        assert driver.returncode == 1, output
        assert 0 < sent < LARGE_SENT
        with replaying() as driver:
            output, _ = driver.communicate(timeout=DRIVER_SECONDS)

        assert driver.returncode == 0, output
        assert f"already there: {sent:,}" in output
        assert copied() == LARGE_SENT
