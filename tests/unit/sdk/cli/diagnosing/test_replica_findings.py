"""The doctor's findings on broker groups: each fault has a fix."""

from __future__ import annotations

import pytest

from eruca.cli.diagnosing.findings import BEHIND_BYTES, Finding, Verdict
from eruca.cli.diagnosing.replica_findings import judged
from eruca.contract.broker_groups import BrokerGroupView
from eruca.contract.replication import ReplicationStatus
from support.group_rows import group, replica, status

HEALTHY = {1: status(1, role="master"), 2: status(2)}


def pair(
    *, epoch: int = 7, in_sync: tuple[int, ...] = (1, 2), min_in_sync: int = 1
) -> BrokerGroupView:
    """Return a group of two replicas."""
    replicas = [replica(1), replica(2)]
    return group(epoch=epoch, in_sync=in_sync, min_in_sync=min_in_sync, replicas=replicas)


def following(*, skew: float = 0.0, reason: str | None = None) -> dict[str, object]:
    return {
        "state": "following",
        "reason": reason,
        "master_url": "http://127.0.0.1:10911",
        "behind_bytes": 0,
        "behind_seconds": 0.0,
        "last_contact_at": None,
        "clock_skew_seconds": skew,
    }


def problems(
    row: BrokerGroupView,
    statuses: dict[int, ReplicationStatus],
    faults: dict[int, str] | None = None,
) -> list[Finding]:
    return [f for f in judged(row, statuses, faults or {}) if f.verdict is not Verdict.OK]


def test_a_group_with_every_copy_is_fine() -> None:
    found = [*judged(pair(), HEALTHY, {})]

    assert {finding.verdict for finding in found} == {Verdict.OK}
    assert [finding.check for finding in found] == [
        "copies",
        "master",
        "arbiter",
        "replica 1",
        "replica 2",
    ]


@pytest.mark.parametrize(("minimum", "verdict"), [(1, Verdict.WARNING), (2, Verdict.FAULT)])
def test_missing_copies_are_a_fault_once_sends_are_refused(minimum: int, verdict: Verdict) -> None:
    row = pair(in_sync=(1,), min_in_sync=minimum)

    found = problems(row, HEALTHY)

    assert (found[0].check, found[0].verdict) == ("copies", verdict)
    assert found[0].detail.startswith("1 of 2 replicas are in sync")


@pytest.mark.parametrize(
    ("master", "detail"),
    [
        (None, "does not answer"),
        (status(1), "is standby, epoch 7"),
        (status(1, role="taking over"), "is taking over, epoch 7"),
        (status(1, role="master", epoch=6), "is master, epoch 6"),
    ],
)
def test_a_group_without_its_master_is_a_fault(
    master: ReplicationStatus | None, detail: str
) -> None:
    statuses = {2: status(2)} | ({} if master is None else {1: master})

    found = problems(pair(), statuses)

    assert (found[0].check, found[0].verdict) == ("master", Verdict.FAULT)
    assert found[0].detail.endswith(detail)


def test_a_row_below_a_logs_epoch_is_to_be_repaired_rule_13() -> None:
    found = problems(pair(epoch=7), HEALTHY | {2: status(2, last_epoch=8)})

    assert [(f.check, f.verdict, f.fix) for f in found] == [
        ("arbiter", Verdict.FAULT, "eruca broker repair-arbiter broker-a")
    ]


def test_a_replica_that_does_not_report_is_named() -> None:
    found = problems(pair(), {1: HEALTHY[1]}, {2: "http://127.0.0.1:10912: cannot connect"})

    assert [(f.check, f.detail) for f in found] == [
        ("replica 2", "http://127.0.0.1:10912: cannot connect")
    ]
    assert "remove-replica broker-a --replica 2" in (found[0].fix or "")


def test_a_replica_far_behind_is_named_with_its_distance() -> None:
    ahead = status(1, role="master", end=2 * BEHIND_BYTES)

    found = problems(pair(in_sync=(1, 2)), {1: ahead, 2: status(2, end=0)})

    assert [(f.check, f.detail) for f in found] == [
        ("replica 2", "standby, in sync, 128 MiB behind")
    ]


def test_a_replica_outside_the_set_says_why() -> None:
    refused = status(2, following=following(reason="its log is not a copy of the master's"))

    found = problems(pair(in_sync=(1,)), HEALTHY | {2: refused})

    assert found[-1].detail == "standby, not in sync: its log is not a copy of the master's"


def test_damage_that_nobody_could_repair_is_a_fault() -> None:
    found = problems(pair(), HEALTHY | {2: status(2, damaged=True)})

    assert [(f.check, f.verdict) for f in found] == [("replica 2", Verdict.FAULT)]


@pytest.mark.parametrize(
    ("skew", "told"),
    [
        (0.49, []),
        (-0.49, []),
        (0.5, ["the clock of replica 2 is 0.5 s ahead of its master's"]),
        (-2.0, ["the clock of replica 2 is 2.0 s behind its master's"]),
    ],
)
def test_clocks_apart_by_half_a_second_are_told(skew: float, told: list[str]) -> None:
    found = problems(pair(), HEALTHY | {2: status(2, following=following(skew=skew))})

    assert [finding.detail for finding in found] == told
