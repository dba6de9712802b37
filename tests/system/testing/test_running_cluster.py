"""A cluster for tests: services are found by name, killed, stopped and restarted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import eruca
from eruca_deploy.cluster import StartError
from eruca_testing import RunningCluster
from support.interrupts import Interrupt, interruptible
from support.patience import PATIENCE_SECONDS
from support.waiting import wait_until

SYNC = {"ERUCA_BROKER_FLUSH_MODE": "sync"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with RunningCluster(brokers=2, settings=SYNC) as cluster:
        yield cluster


def test_it_says_where_everything_is(cluster: RunningCluster) -> None:
    assert [service.url for service in cluster.plan.namesrvs] == cluster.namesrv_urls
    assert list(cluster.broker_urls) == ["broker-a", "broker-b"]
    assert (cluster.txn_checker_urls, cluster.query_urls) == ([], [])
    assert any("listening" in line for line in cluster.tail("broker-a"))


def test_settings_reach_the_services_and_stores_stay_small(cluster: RunningCluster) -> None:
    with eruca.Client(cluster.namesrv_urls) as client, client.producer() as producer:
        sent = producer.send(eruca.Message("t-settings", "x"))
    [segment] = (cluster.plan.brokers[0].directory / "commitlog").iterdir()

    assert sent.durability == "flushed"
    assert segment.stat().st_size == 16 * 1024 * 1024


@pytest.mark.parametrize("end", [RunningCluster.kill, RunningCluster.stop_one])
def test_a_service_that_was_ended_is_dead_until_it_is_restarted(
    cluster: RunningCluster, end: Callable[[RunningCluster, str], None]
) -> None:
    before = cluster.pid("broker-b")
    assert before is not None

    end(cluster, "broker-b")
    assert cluster.pid("broker-b") is None
    assert not psutil.pid_exists(before)

    cluster.restart("broker-b")
    assert cluster.pid("broker-b") not in (None, before)


def test_one_that_does_not_come_up_leaves_nothing() -> None:
    threads = threading.active_count()

    with (
        pytest.raises(StartError, match="FLUSH_MODE"),
        RunningCluster(settings={"ERUCA_BROKER_FLUSH_MODE": "sometimes"}),
    ):
        pass

    assert threading.active_count() == threads


def test_one_that_is_interrupted_while_it_starts_leaves_nothing() -> None:
    cluster = RunningCluster(brokers=3)
    found: list[Path] = []

    def broker_directories() -> list[Path]:
        directory = cluster._cluster._temporary
        return [] if directory is None else list(directory.glob("broker-a"))

    def break_off(interrupt: Interrupt) -> None:
        found.extend(wait_until(broker_directories))
        interrupt.send()

    def wait_too_long() -> None:
        threading.Event().wait(PATIENCE_SECONDS)
        pytest.fail(f"it was not interrupted: {found=}")

    with interruptible() as interrupt:
        threading.Thread(target=break_off, args=(interrupt,), daemon=True).start()
        with pytest.raises(KeyboardInterrupt), cluster:
            wait_too_long()

    [directory] = found
    assert not directory.parent.exists()
