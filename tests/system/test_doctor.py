"""``eruca doctor`` asks the services that follow brokers' logs, too, and says what they lack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from eruca_testing import RunningCluster
from support.command_line import Eruca


class Urls(NamedTuple):
    """The URLs of a cluster's services."""

    namesrv: str
    query: str
    txn_checker: str
    console: str


@pytest.fixture(scope="module")
def urls() -> Iterator[Urls]:
    with RunningCluster(txn_checkers=1, queries=1, consoles=1) as cluster:
        [namesrv] = cluster.namesrv_urls
        yield Urls(
            namesrv,
            cluster.query_urls[0],
            cluster.txn_checker_urls[0],
            cluster.console_urls[0],
        )


@pytest.fixture
def eruca(urls: Urls) -> Eruca:
    return Eruca(urls.namesrv)


def findings(report: dict[str, Any], subject: str) -> dict[str, dict[str, Any]]:
    return {f["check"]: f for f in report["findings"] if f["subject"] == subject}


def test_followers_that_are_well_are_told(eruca: Eruca, urls: Urls) -> None:
    report = eruca.json("doctor")

    assert report["healthy"]
    for url, what in (
        (urls.query, "query service"),
        (urls.txn_checker, "transaction checker"),
    ):
        found = findings(report, url)
        assert found["reachable"]["verdict"] == "ok"
        assert found["identity"]["detail"].startswith(what)
        assert "broker-a" in found["projection"]["detail"]


def test_one_that_does_not_answer_is_a_fault_with_a_fix(eruca: Eruca) -> None:
    eruca.environment |= {"ERUCA_QUERY_URLS": "http://127.0.0.1:1"}

    done = eruca("doctor", code=1)

    assert "query service: cannot connect" in done.stdout
    assert "to fix it: start the service" in done.stdout


def test_a_service_of_another_kind_is_not_taken_for_it(eruca: Eruca, urls: Urls) -> None:
    eruca.environment |= {"ERUCA_QUERY_URLS": urls.txn_checker}

    done = eruca("doctor", code=1)

    assert "the answer is not a query service's" in " ".join(done.stdout.split())


def test_a_named_console_is_told_and_none_is_no_fault(eruca: Eruca, urls: Urls) -> None:
    assert findings(eruca.json("doctor"), "console")["named"]["verdict"] == "ok"
    eruca.environment |= {"ERUCA_CONSOLE_URLS": urls.console}

    report = eruca.json("doctor")

    found = findings(report, urls.console)
    assert report["healthy"]
    assert found["identity"]["detail"] == "console"
    assert found["log-in"]["verdict"] == "ok"


def test_a_console_that_is_away_or_is_none_is_a_fault(eruca: Eruca, urls: Urls) -> None:
    eruca.environment |= {"ERUCA_CONSOLE_URLS": f"{urls.query};http://127.0.0.1:1"}

    done = eruca("doctor", code=1)

    shown = " ".join(done.stdout.split())
    assert "the answer is not a console's" in shown
    assert "console: cannot connect" in shown


def test_a_registered_broker_that_does_not_answer_is_named() -> None:
    """In a cluster of its own: services that follow logs would go on to miss that broker."""
    registration = {
        "cluster": "eruca",
        "urls": {"default": "http://127.0.0.1:1"},
        "store_host": "127.0.0.1:1",
        "data_version": 1,
        "topics": [],
        "expiry_seconds": 600,
    }
    with RunningCluster() as cluster:
        [namesrv] = cluster.namesrv_urls
        place = f"{namesrv}/v1/brokers/broker-lost/0"
        httpx.put(place, json=registration, trust_env=False).raise_for_status()

        done = Eruca(namesrv)("doctor", "-o", "json", code=1)

    assert "broker-lost" in done.stdout
    assert "cannot connect" in done.stdout


def test_replicas_are_found_by_their_controllers_and_judged() -> None:
    with RunningCluster(replicas=2, settings={"ERUCA_CONTROLLER_STORE": "file"}) as cluster:
        eruca = Eruca(cluster.namesrv_urls[0])  # it has no controller's URL

        report = eruca.json("doctor")

        [controller] = cluster.controller_urls
        assert findings(report, controller)["controller"]["verdict"] == "ok"
        found = findings(report, "broker-a")
        assert found["copies"]["detail"] == "2 of 2 replicas are in sync"
        assert {found[check]["verdict"] for check in ("copies", "master", "arbiter")} == {"ok"}
        shown = eruca.json("broker", "show", "broker-a")
        assert len(shown["replicas"]) == 2
