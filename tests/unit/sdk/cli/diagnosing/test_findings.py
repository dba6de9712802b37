"""The doctor's findings: each fault is distinguished from similar ones and has a fix."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eruca.cli.diagnosing.findings import (
    BEHIND_BYTES,
    Verdict,
    advertised_address,
    agreement,
    answer_time,
    broker_health,
    clock,
    heartbeat,
    identity,
    is_healthy,
    unused_proxy,
)
from eruca.contract.routes import BrokerAddress
from eruca.contract.status import BrokerStatus, LogStatus, ProjectionStatus
from support.broker_statuses import tier_status

NOW = datetime(2026, 11, 1, tzinfo=UTC)
LOCAL = ("http://127.0.0.1:9876",)
REMOTE = ("http://10.0.0.1:9876",)


def status(**changes: object) -> BrokerStatus:
    healthy = BrokerStatus(
        cluster="eruca",
        broker_name="broker-a",
        broker_id=0,
        role="master",
        version="0.1.0",
        store_host="127.0.0.1:10911",
        started_at=NOW,
        flush_mode="async",
        is_writable=True,
        refusal=None,
        disk_used_ratio=0.5,
        log=LogStatus(
            min_offset=0, max_offset=0, flushed_offset=0, segment_bytes=1, segment_count=1
        ),
        projections=[ProjectionStatus(name="consume queues", log_offset=0, behind_bytes=0)],
        held_requests=0,
        held_requests_max=100,
        bytes_in_flight=0,
        bytes_in_flight_max=100,
        consume_bytes_in_flight=0,
        consume_bytes_in_flight_max=100,
        topics=0,
        groups=0,
    )
    return healthy.model_copy(update=changes)


def verdicts(status: BrokerStatus) -> dict[str, Verdict]:
    return {finding.check: finding.verdict for finding in broker_health("broker-a", status)}


def test_a_healthy_broker_has_nothing_but_good_findings() -> None:
    findings = broker_health("broker-a", status())

    assert {finding.verdict for finding in findings} == {Verdict.OK}
    assert is_healthy(findings)


@pytest.mark.parametrize(
    ("changes", "check", "verdict"),
    [
        ({"is_writable": False, "refusal": "the disk is full"}, "writes", Verdict.FAULT),
        ({"tier": tier_status()}, "tier", Verdict.OK),
        ({"tier": tier_status(failure="the tier has not answered")}, "tier", Verdict.FAULT),
        ({"tier": tier_status(missing_count=1)}, "tier", Verdict.FAULT),
        ({"tier": tier_status(damaged_objects=1)}, "tier", Verdict.FAULT),
        ({"tier": tier_status(damaged_count=1)}, "tier", Verdict.FAULT),
        ({"tier": tier_status(behind_bytes=BEHIND_BYTES + 1)}, "tier", Verdict.WARNING),
        ({"disk_used_ratio": 0.75}, "disk", Verdict.WARNING),
        ({"disk_used_ratio": 0.90}, "disk", Verdict.FAULT),
        ({"held_requests": 90}, "load", Verdict.WARNING),
        ({"bytes_in_flight": 95}, "load", Verdict.WARNING),
        ({"consume_bytes_in_flight": 95}, "load", Verdict.WARNING),
        (
            {
                "projections": [
                    ProjectionStatus(name="key index", log_offset=0, behind_bytes=BEHIND_BYTES + 1)
                ]
            },
            "projections",
            Verdict.WARNING,
        ),
        (
            {
                "projections": [
                    ProjectionStatus(name="key index", log_offset=0, behind_bytes=0, failure="EIO")
                ]
            },
            "projections",
            Verdict.FAULT,
        ),
    ],
)
def test_what_a_broker_says_of_itself_is_judged_check_by_check(
    changes: dict[str, object], check: str, verdict: Verdict
) -> None:
    found = verdicts(status(**changes))

    assert found.pop(check) is verdict
    assert set(found.values()) == {Verdict.OK}


def test_whatever_is_not_good_says_how_to_fix_it() -> None:
    sick = status(is_writable=False, disk_used_ratio=0.95, held_requests=100)

    assert all(f.fix for f in broker_health("broker-a", sick) if f.verdict is not Verdict.OK)


@pytest.mark.parametrize(
    ("url", "namesrvs", "verdict"),
    [
        ("http://127.0.0.1:10911", LOCAL, Verdict.OK),
        ("http://10.0.0.2:10911", REMOTE, Verdict.OK),
        ("http://broker-a.example:10911", REMOTE, Verdict.OK),
        ("http://127.0.0.1:10911", REMOTE, Verdict.FAULT),
        ("http://localhost:10911", REMOTE, Verdict.FAULT),
        ("http://[::1]:10911", REMOTE, Verdict.FAULT),
        ("http://0.0.0.0:10911", LOCAL, Verdict.FAULT),
        ("http://[::]:10911", LOCAL, Verdict.FAULT),
    ],
)
def test_an_advertised_url_must_lead_from_here_to_the_broker(
    url: str, namesrvs: tuple[str, ...], verdict: Verdict
) -> None:
    assert advertised_address("broker-a", url, namesrvs).verdict is verdict


def test_another_broker_behind_an_advertised_url_is_a_fault() -> None:
    assert identity("broker-a", status(), "http://b").verdict is Verdict.OK
    assert identity("broker-b", status(), "http://b").verdict is Verdict.FAULT


def test_name_servers_that_know_different_brokers_are_named_with_what_they_know() -> None:
    same = agreement({"a": ["x", "y"], "b": ["y", "x"]})
    different = agreement({"a": ["x"], "b": []})

    assert same.verdict is Verdict.OK
    assert different.verdict is Verdict.WARNING
    assert different.detail == "a knows x; b knows none"


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, False),
        ({"HTTP_PROXY": "http://proxy:3128"}, True),
        ({"all_proxy": "http://proxy:3128"}, True),
        ({"HTTP_PROXY": ""}, False),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "localhost, 10.0.0.1"}, False),
        ({"HTTP_PROXY": "http://proxy:3128", "no_proxy": "*"}, False),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "0.0.1"}, False),
    ],
)
def test_of_a_proxy_that_others_would_ask_is_told_that_it_is_not_used(
    environment: dict[str, str], *, told: bool
) -> None:
    """The last one is a suffix, which is how most programs read NO_PROXY."""
    finding = unused_proxy(REMOTE, environment)

    assert (finding is not None) is told
    assert finding is None or "bypass the environment's proxy" in finding.detail


@pytest.mark.parametrize(
    ("left_seconds", "verdict"),
    [(119, Verdict.OK), (90, Verdict.OK), (29, Verdict.WARNING), (-5, Verdict.WARNING)],
)
def test_a_broker_whose_heartbeats_are_missing_is_a_warning(
    left_seconds: float, verdict: Verdict
) -> None:
    expires_at = NOW + timedelta(seconds=120)
    address = BrokerAddress(
        broker_id=0,
        role="master",
        urls={"default": "http://b"},
        store_host="127.0.0.1:1",
        data_version=1,
        last_seen_at=NOW,
        expires_at=expires_at,
    )

    finding = heartbeat("broker-a", address, expires_at.timestamp() - left_seconds)

    assert finding.verdict is verdict


@pytest.mark.parametrize(
    ("skew", "uncertainty", "verdict"),
    [
        (0.2, 0.1, Verdict.OK),
        (-4.9, 0, Verdict.OK),
        (6, 2, Verdict.OK),
        (6, 0.5, Verdict.WARNING),
        (-3600, 1, Verdict.WARNING),
    ],
)
def test_a_clock_is_judged_by_what_is_certain_of_its_skew(
    skew: float, uncertainty: float, verdict: Verdict
) -> None:
    assert clock("broker-a", skew, uncertainty).verdict is verdict


def test_a_slow_answer_is_a_warning() -> None:
    assert answer_time("a", "reachable", 0.01).verdict is Verdict.OK
    assert answer_time("a", "reachable", 1.5).verdict is Verdict.WARNING
