"""Brokers that are known, and their faults."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from eruca.contract.errors import ForbiddenError, TransportError
from eruca.contract.routes import BrokerAddress, BrokerGroup
from eruca.contract.status import BrokerStatus, LogStatus, ProjectionStatus
from eruca_console.cluster.brokers import (
    REMEMBERED_MAX,
    REMEMBERED_SECONDS,
    BrokerRow,
    KnownBrokers,
    faults_of,
)
from eruca_console.cluster.outcomes import Outcome

AT: Final = datetime(2026, 11, 21, tzinfo=UTC)


def address(broker_id: int, role: str) -> BrokerAddress:
    return BrokerAddress.model_validate(
        {
            "broker_id": broker_id,
            "role": role,
            "urls": {"default": "http://a"},
            "store_host": "127.0.0.1:1",
            "data_version": 1,
            "last_seen_at": AT,
            "expires_at": AT,
        }
    )


def group(*roles: tuple[int, str]) -> BrokerGroup:
    brokers = [address(number, role) for number, role in roles]
    return BrokerGroup(cluster="c", broker_name="broker-a", epoch=3, brokers=brokers)


def status(*, refusal: str | None = None, disk: float = 0.2, failure: str | None = None) -> object:
    return BrokerStatus(
        cluster="c",
        broker_name="broker-a",
        broker_id=0,
        role="master",
        version="1",
        store_host="127.0.0.1:1",
        started_at=AT,
        flush_mode="sync",
        is_writable=refusal is None,
        refusal=refusal,
        disk_used_ratio=disk,
        log=LogStatus(
            min_offset=100, max_offset=350, flushed_offset=350, segment_bytes=1, segment_count=1
        ),
        projections=[
            ProjectionStatus(name="queues", log_offset=300, behind_bytes=50, failure=failure),
            ProjectionStatus(name="index", log_offset=340, behind_bytes=10),
        ],
        held_requests=0,
        held_requests_max=1,
        bytes_in_flight=0,
        bytes_in_flight_max=1,
        consume_bytes_in_flight=0,
        consume_bytes_in_flight_max=1,
        topics=0,
        groups=0,
    )


def row(found: BrokerGroup | None, **state: object) -> BrokerRow:
    return BrokerRow("broker-a", found, Outcome(status(**state), AT))  # type: ignore[arg-type]


def test_a_broker_without_faults_has_none() -> None:
    assert faults_of(row(group((0, "master"), (1, "standby")))) == []


def test_figures_are_the_masters_own() -> None:
    found = row(group((0, "master"), (1, "standby"), (2, "learner")))

    assert (found.log_bytes, found.behind_bytes) == (250, 50)
    assert (found.in_sync_count, len(found.copies)) == (2, 3)
    [fault] = faults_of(found)
    assert (fault.values, fault.is_severe) == ({"count": 1}, False)


def test_what_is_unknown_is_none() -> None:
    found = BrokerRow("broker-a", group((0, "master")), Outcome(error=TransportError("refused")))

    assert (found.log_bytes, found.behind_bytes) == (None, None)
    [fault] = faults_of(found)
    assert (fault.values, fault.is_severe) == ({"said": "refused"}, True)


def test_a_missing_right_is_no_fault_of_the_broker() -> None:
    found = BrokerRow("broker-a", group((0, "master")), Outcome(error=ForbiddenError("no")))

    assert faults_of(found) == []


def test_a_broker_that_is_away_or_has_no_master_is_said_to_be() -> None:
    assert "away" in faults_of(row(None))[0].text
    assert "no master" in faults_of(row(group((1, "standby"))))[0].text


def test_refusals_failures_and_a_full_disk_are_faults() -> None:
    found = row(group((0, "master")), refusal="disk full", disk=0.93, failure="corrupt")

    shown = [(fault.values, fault.is_severe) for fault in faults_of(found)]
    assert shown == [
        ({"said": "disk full"}, True),
        ({"said": "queues: corrupt"}, True),
        ({"share": "93 %"}, False),
    ]


def test_brokers_are_remembered_for_a_time_and_in_a_bounded_number() -> None:
    now = 0.0
    known = KnownBrokers(lambda: now)
    known.learn(["broker-b", "broker-a"])
    assert known.without({"broker-a"}) == ["broker-b"]

    now = REMEMBERED_SECONDS
    assert known.without({}) == ["broker-a", "broker-b"]
    now += 1
    assert known.without({}) == []
    known.learn(map(str, range(REMEMBERED_MAX + 1)))
    assert len(known.without({})) == REMEMBERED_MAX
