"""An export whose driver, workers and service are killed again and again: no row lost or doubled.

Beside it, the lake is maintained, and most of the maintenance is killed, too.

Messages are sent all the while, so that high-water marks move. A driver is killed with everything
it has started, at a random moment of a batch; the service at random moments of its answers; a
worker while it waits for rows.

What is random comes from one seed, which a failure prints: ``ERUCA_CRASH_SEED`` repeats the same
decisions, though not the same interleaving of processes. ``ERUCA_CRASH_ROUNDS`` sets how many
drivers are killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

import psutil
import pytest
from pyspark.sql import SparkSession

import eruca
from eruca_spark.lake import Lake, chain_faults, read_lake
from eruca_spark.maintenance.folders import LocalFolders
from eruca_spark.maintenance.running import Maintenance
from support.export_cluster import ExportCluster, command, export_cluster, kill_tree
from support.small_lakes import DYING_MAINTENANCE, support_path
from support.spark import SMALL_SPARK, command_line, kill_reader, raw_offsets
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(1_200)

TOPIC: Final = "orders"
ROUNDS: Final = int(os.environ.get("ERUCA_CRASH_ROUNDS") or 3)
BATCH_ROWS: Final = 6_000
SENT_AT_ONCE: Final = 1_000
SENT_AT_FIRST: Final = 60_000
SENT_MAX: Final = 60_000  # messages while drivers are killed
WORKER_SECONDS: Final = 60.0  # to see a worker that reads
DRIVER_SECONDS: Final = 300.0
MAINTENANCE_STEPS: Final = 12  # at first; later as many as a whole run has
LOOK_SECONDS: Final = 0.02  # a worker reads for longer


@pytest.fixture
def random() -> Random:
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    return Random(seed)


def test_no_row_is_lost_or_doubled_whatever_is_killed(
    tmp_path: Path, random: Random, spark: SparkSession
) -> None:
    lake = tmp_path / "lake"
    with export_cluster() as cluster, cluster.client() as client:
        client.admin.create_topic(TOPIC, queue_count=3)
        send(client, SENT_AT_FIRST)
        kills: Counter[str] = Counter()
        with killing_maintenance(lake, random, kills):
            with sending(client) as sent, killing_services(cluster, random, kills):
                while kills["driver"] < ROUNDS:
                    kill_in_a_batch(cluster, lake, random, kills)
            with exporting(cluster, lake) as driver:
                output, _ = driver.communicate(timeout=DRIVER_SECONDS)
        assert driver.returncode == 0, output
        queues = client.admin.queues(TOPIC)

    stored = sorted(
        (TOPIC, queue.broker_name, queue.queue_id, offset)
        for queue, held in queues.items()
        for offset in range(held.max_offset)
    )
    print(dict(kills), len(stored), "messages")  # noqa: T201 - shown by pytest -rP
    assert len(stored) >= SENT_AT_FIRST + sum(sent)
    assert raw_offsets(lake) == stored
    manifests = Lake(spark, str(lake)).manifests()
    assert chain_faults(manifests) == []
    assert sum(manifest.rows for manifest in manifests) == len(stored)
    rows = read_lake(spark, str(lake))
    assert rows.select("message_id").distinct().count() == rows.count() == len(stored)
    maintain(lake)
    assert raw_offsets(lake) == stored
    assert Lake(spark, str(lake)).batch_files(0) == ()
    manifests = Lake(spark, str(lake)).manifests()
    assert chain_faults(manifests) == []
    assert sum(manifest.rows for manifest in manifests) == len(stored)
    assert kills["maintenance"] >= 1
    assert kills["service"] >= ROUNDS
    assert kills["worker"] >= 1


def kill_in_a_batch(
    cluster: ExportCluster, lake: Path, random: Random, kills: Counter[str]
) -> None:
    """Start a driver, kill one of its workers perhaps, and then all of it within a batch."""
    with exporting(cluster, lake) as driver:
        until_a_batch_begins(driver, lake)
        if kills["worker"] <= kills["driver"]:
            kills["worker"] += kill_worker(driver, cluster.url)
        time.sleep(random.uniform(0, 1.0))  # where in the batch it is hit is what is random
        kill_tree(driver.pid)
        kills["driver"] += driver.wait() == -signal.SIGKILL


def until_a_batch_begins(driver: subprocess.Popen[str], lake: Path) -> None:
    """Wait until a batch has been planned and is not finished."""

    def has_begun() -> bool:
        assert driver.poll() is None, driver.communicate()[0]
        planned = {path.name for path in (lake / "_checkpoint" / "offsets").glob("[0-9]*")}
        done = {path.name for path in (lake / "_checkpoint" / "commits").glob("[0-9]*")}
        if not planned - done:
            return False  # without a look at all processes, which is work
        tasks = psutil.Process(driver.pid).children(recursive=True)
        return any("daemon" in " ".join(command_line(task)) for task in tasks)

    wait_until(has_begun, within_seconds=DRIVER_SECONDS)


def kill_worker(driver: subprocess.Popen[str], url: str) -> int:
    """Kill a worker that reads from the service, if one is seen before the driver ends."""
    deadline = time.monotonic() + WORKER_SECONDS
    while time.monotonic() < deadline and driver.poll() is None:
        if kill_reader(url, driver.pid) is not None:
            return 1
        time.sleep(LOOK_SECONDS)  # a look at all processes is work, and the driver needs the time
    return 0


def exporting(cluster: ExportCluster, lake: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """Return a driver that exports what is there."""
    settings = [
        word for name, value in SMALL_SPARK.items() for word in ("--conf", f"{name}={value}")
    ]
    return command(
        "export",
        str(lake),
        "--topic",
        TOPIC,
        "--url",
        cluster.url,
        "--rows-per-batch",
        str(BATCH_ROWS),
        "--option",
        "partitionRows=2000",
        "--master",
        "local[2,4]",
        *settings,
    )


def send(client: eruca.Client, count: int) -> None:
    with client.producer() as producer:
        messages = [
            eruca.Message(TOPIC, f"order {number}".encode() * 20, keys=(f"key-{number % 97}",))
            for number in range(count)
        ]
        producer.send_many(messages)


@contextmanager
def sending(client: eruca.Client) -> Iterator[list[int]]:
    """Send messages until the block ends; yield how many there have been."""
    is_over = threading.Event()
    sent: list[int] = []

    def run() -> None:
        while not is_over.wait(1.0) and sum(sent) < SENT_MAX:
            send(client, SENT_AT_ONCE)
            sent.append(SENT_AT_ONCE)

    with running_thread(run, is_over):
        yield sent


@contextmanager
def killing_services(cluster: ExportCluster, random: Random, kills: Counter[str]) -> Iterator[None]:
    """Kill the query service now and then, and start it again, until the block ends.

    It lives as long as its start took at least: on a busy machine nothing would be read otherwise.
    """
    is_over = threading.Event()

    def run() -> None:
        start_seconds = 0.0
        while not is_over.wait(start_seconds + random.uniform(2.0, 6.0)):
            cluster.kill_query()
            kills["service"] += 1
            began = time.monotonic()
            cluster.start_query()
            start_seconds = time.monotonic() - began

    with running_thread(run, is_over):
        yield


@contextmanager
def killing_maintenance(lake: Path, random: Random, kills: Counter[str]) -> Iterator[None]:
    """Maintain the lake again and again, and kill most of it, until the block ends."""
    is_over = threading.Event()

    def run() -> None:
        steps = MAINTENANCE_STEPS
        while not is_over.wait(0.5):
            if not (lake / "_manifest").exists():
                continue
            step = str(random.randrange(steps))
            program = (sys.executable, "-c", DYING_MAINTENANCE)
            with command(str(lake), step, environment=support_path(), program=program) as process:
                output, _ = process.communicate(timeout=DRIVER_SECONDS)
            assert process.returncode in (0, -signal.SIGKILL), output
            kills["maintenance" if process.returncode else "maintained"] += 1
            # Manifests are joined after all merges, at the end of the steps.
            steps = (
                steps * 2 if process.returncode else max(MAINTENANCE_STEPS, int(output.split()[-1]))
            )

    with running_thread(run, is_over):
        yield


def maintain(lake: Path) -> None:
    folders = LocalFolders(lake)
    with folders.maintaining():
        Maintenance(folders).run(1_000_000, today=datetime.now(UTC).date())


@contextmanager
def running_thread(run: Callable[[], None], is_over: threading.Event) -> Iterator[None]:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert failures == []
