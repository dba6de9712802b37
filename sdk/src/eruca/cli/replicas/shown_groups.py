"""Broker groups for people: tables, and sentences about a loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eruca.cli.replicas.group_changes import in_sync_ids, missing_bytes
from eruca.contract.broker_groups import ReplicaName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eruca.cli.replicas.group_changes import Statuses
    from eruca.cli.replicas.missing_messages import MissingMessages
    from eruca.cli.session import Session
    from eruca.contract.broker_groups import BrokerGroupChange, BrokerGroupView, Replica
    from eruca.contract.replication import ReplicationStatus


def show_group(session: Session, group: BrokerGroupView, statuses: Statuses) -> None:
    """Print a group's row, and its replicas."""
    session.show_record(
        (
            ("broker", group.broker_name),
            ("epoch", f"{group.epoch}, unclean" if group.unclean else group.epoch),
            ("in sync", f"{ids_text(in_sync_ids(group))}; sends need {group.min_in_sync}"),
            ("flush mode", group.flush_mode),
            ("changed at", group.changed_at.isoformat()),
            ("by", group.by),
            ("reason", group.reason),
        )
    )
    session.show_text("")
    session.show_table(
        ("replica", "role", "epoch", "end", "confirmed", "URLs", "problem"),
        (
            replica_row(group, replica, statuses.get(replica.replica_id))
            for replica in sorted(group.replicas, key=lambda one: one.replica_id)
        ),
    )


def show_changes(session: Session, changes: Iterable[BrokerGroupChange]) -> None:
    """Print a group's history."""
    session.show_table(
        ("changed at", "change", "epoch", "master", "in sync", "clean", "by", "reason"),
        (
            (
                change.changed_at.isoformat(),
                change.kind,
                change.epoch,
                change.master.replica_id,
                ids_text(sorted(member.replica_id for member in change.in_sync)),
                "no" if change.unclean else "yes",
                change.by,
                change.reason,
            )
            for change in changes
        ),
    )


def replica_row(
    group: BrokerGroupView, replica: Replica, status: ReplicationStatus | None
) -> tuple[object, ...]:
    """Return a replica as a row of the table."""
    urls = ", ".join(f"{network}={url}" for network, url in replica.urls.items())
    if status is None:
        return (replica.replica_id, None, None, None, None, urls, "does not answer")
    problem = problem_of(group, replica.replica_id, status)
    return (
        replica.replica_id,
        "learner" if problem and status.role == "standby" else status.role,
        status.epoch,
        status.end,
        status.confirmed,
        urls,
        problem or "none",
    )


def problem_of(group: BrokerGroupView, replica_id: int, status: ReplicationStatus) -> str | None:
    """Return why a replica is not in sync; None: it is."""
    uid = status.uid
    if uid is not None and ReplicaName(replica_id=replica_id, uid=uid) in group.in_sync:
        return None
    following = status.following
    return (following.reason if following is not None else None) or "not in sync"


def loss_text(
    replica_id: int,
    group: BrokerGroupView,
    statuses: Statuses,
    messages: MissingMessages | None = None,
) -> str:
    """Return the loss if *replica_id*, which answers, becomes the master outside the set.

    Args:
        replica_id: The replica.
        group: The arbiter's row.
        statuses: Of the replicas that answer.
        messages: Those that another replica has; None: no replica knows.
    """
    own = statuses[replica_id]
    missing = missing_bytes(own, statuses.values())
    if messages is None:
        lacks = f"at least {missing:,} bytes of confirmed messages"
    else:
        least = "at least" if messages.is_all else "more than"
        lacks = f"{least} {messages.count:,} confirmed messages ({missing:,} bytes)"
    text = f"Replica {replica_id} is not in sync: it lacks {lacks}."
    if silent := [one for one in in_sync_ids(group) if one not in statuses]:
        heard_at = own.following.last_contact_at if own.following is not None else None
        since = (
            "the replica's last contact with its master, at an unknown time"
            if heard_at is None
            else heard_at.isoformat()
        )
        text += (
            f" In-sync replicas that do not answer: {ids_text(silent)}. Messages that were"
            f" confirmed after {since} are lost as well."
        )
    return text


def ids_text(replica_ids: Iterable[int]) -> str:
    """Return replica ids as text."""
    return ", ".join(map(str, replica_ids)) or "none"
