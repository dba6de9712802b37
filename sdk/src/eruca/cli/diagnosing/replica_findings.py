"""Find faults of a broker group: copies, master, clocks, and the arbiter's row. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from eruca.cli.diagnosing.findings import BEHIND_BYTES, Finding, Verdict
from eruca.cli.replicas.group_changes import in_sync_ids, is_behind, leads
from eruca.contract.broker_groups import BrokerGroupView
from eruca.contract.replication import ReplicationStatus

REPLICA_SKEW_SECONDS: Final = 0.5  # delayed messages would be that early or late after a fail-over


def judged(
    group: BrokerGroupView, statuses: Mapping[int, ReplicationStatus], faults: Mapping[int, str]
) -> Iterator[Finding]:
    """Yield the findings about a broker group.

    Args:
        group: Its row.
        statuses: The statuses of the replicas that answer, by replica id.
        faults: The faults of the others.
    """
    yield _copies(group)
    yield _master(group, statuses)
    yield _arbiter(group, statuses)
    for replica_id, fault in sorted(faults.items()):
        yield Finding(
            group.broker_name,
            f"replica {replica_id}",
            Verdict.WARNING,
            fault,
            "start it; to remove it for good: eruca broker remove-replica"
            f" {group.broker_name} --replica {replica_id}",
        )
    for replica_id, status in sorted(statuses.items()):
        yield _replica(group, replica_id, status, statuses)
        if (skew := _skew(group, replica_id, status)) is not None:
            yield skew


def _copies(group: BrokerGroupView) -> Finding:
    wanted = sum(replica.kind == "member" for replica in group.replicas)
    count = len(group.in_sync)
    detail = f"{count} of {wanted} replicas are in sync"
    fix = "start the missing replicas; the others' log says why one was removed from the set"
    if count < group.min_in_sync:
        detail += f", and sends need {group.min_in_sync}: they are refused"
        return Finding(group.broker_name, "copies", Verdict.FAULT, detail, fix)
    if count < wanted:
        return Finding(group.broker_name, "copies", Verdict.WARNING, detail, fix)
    return Finding(group.broker_name, "copies", Verdict.OK, detail)


def _master(group: BrokerGroupView, statuses: Mapping[int, ReplicationStatus]) -> Finding:
    replica_id = group.master.replica_id
    status = statuses.get(replica_id)
    if status is not None and leads(group, status):
        return Finding(
            group.broker_name,
            "master",
            Verdict.OK,
            f"replica {replica_id}, epoch {group.epoch}",
        )
    role = "does not answer" if status is None else f"is {status.role}, epoch {status.epoch}"
    return Finding(
        group.broker_name,
        "master",
        Verdict.FAULT,
        f"replica {replica_id} is the master of epoch {group.epoch}, and {role}",
        "wait some seconds: in-sync replicas elect another master. If none is left, start one; if"
        f" all are lost: eruca broker elect {group.broker_name} --help",
    )


def _arbiter(group: BrokerGroupView, statuses: Mapping[int, ReplicationStatus]) -> Finding:
    if not is_behind(group, statuses):
        return Finding(group.broker_name, "arbiter", Verdict.OK, f"its row has epoch {group.epoch}")
    latest = max(status.last_epoch for status in statuses.values())
    number = max(status.known_number for status in statuses.values())
    proof = f"a replica's log epoch {latest}"
    if latest <= group.epoch:
        proof = f"number {group.number}; a replica knows number {number}"
    return Finding(
        group.broker_name,
        "arbiter",
        Verdict.FAULT,
        f"its row has epoch {group.epoch}, and {proof}: the arbiter has lost changes",
        f"eruca broker repair-arbiter {group.broker_name}",
    )


def _replica(
    group: BrokerGroupView,
    replica_id: int,
    status: ReplicationStatus,
    statuses: Mapping[int, ReplicationStatus],
) -> Finding:
    check = f"replica {replica_id}"
    if status.damaged:
        return Finding(
            group.broker_name,
            check,
            Verdict.FAULT,
            "its log has damage that no other replica could repair",
            "check its disk; then start it with an empty store directory",
        )
    behind = max(one.end for one in statuses.values()) - status.end
    in_sync = replica_id in in_sync_ids(group)
    detail = f"{status.role}, {'in sync' if in_sync else 'not in sync'}"
    if behind > BEHIND_BYTES:
        return Finding(
            group.broker_name,
            check,
            Verdict.WARNING,
            f"{detail}, {behind / 2**20:.0f} MiB behind",
            "wait: it catches up; if not, check its disk and the network to the master",
        )
    if not in_sync:
        reason = status.following.reason if status.following is not None else None
        return Finding(
            group.broker_name,
            check,
            Verdict.WARNING,
            f"{detail}: {reason or 'it catches up'}",
            "wait some seconds; if it stays so, see its log",
        )
    return Finding(group.broker_name, check, Verdict.OK, detail)


def _skew(group: BrokerGroupView, replica_id: int, status: ReplicationStatus) -> Finding | None:
    skew = status.following.clock_skew_seconds if status.following is not None else None
    if skew is None or abs(skew) < REPLICA_SKEW_SECONDS:
        return None
    direction = "ahead of" if skew > 0 else "behind"
    return Finding(
        group.broker_name,
        "clock",
        Verdict.WARNING,
        f"the clock of replica {replica_id} is {abs(skew):.1f} s {direction} its master's",
        "synchronise both clocks (NTP)",
    )
