"""Broker groups and the statuses of their replicas, as tests need them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

from eruca.contract.broker_groups import BrokerGroupView, Replica, ReplicaName
from eruca.contract.replication import ReplicationStatus

CHANGED_AT: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)


def name(replica_id: int, uid: str | None = None) -> ReplicaName:
    return ReplicaName(replica_id=replica_id, uid=uid or f"uid-{replica_id}")


def replica(replica_id: int) -> Replica:
    return Replica(
        replica_id=replica_id,
        uid=f"uid-{replica_id}",
        urls={"default": f"http://127.0.0.1:{10910 + replica_id}"},
    )


def group(
    *, epoch: int = 7, master: int = 1, in_sync: Collection[int] = (1, 2), **changes: object
) -> BrokerGroupView:
    """Return the row of a group of three replicas."""
    row: dict[str, object] = {
        "broker_name": "broker-a",
        "version": f"{epoch}-0",
        "changed_at": CHANGED_AT,
        "epoch": epoch,
        "master": name(master),
        "in_sync": [name(one) for one in in_sync],
        "replicas": [replica(one) for one in (1, 2, 3)],
        "min_in_sync": 1,
        "flush_mode": "async",
        "unclean": False,
        "by": "broker-a replica 1",
        "reason": "replica 2 has caught up",
    }
    return BrokerGroupView.model_validate(row | changes)


def status(replica_id: int, *, role: str = "standby", **changes: object) -> ReplicationStatus:
    """Return the status of a replica whose log ends at 1 000 in epoch 7."""
    values: dict[str, object] = {
        "role": role,
        "replica_id": replica_id,
        "uid": f"uid-{replica_id}",
        "epoch": 7,
        "last_epoch": 7,
        "min_offset": 0,
        "end": 1_000,
        "durable": 1_000,
        "confirmed": 1_000,
        "in_sync": [],
        "sole_master_seconds": None,
        "replicas": [],
        "following": None,
    }
    return ReplicationStatus.model_validate(values | changes)
