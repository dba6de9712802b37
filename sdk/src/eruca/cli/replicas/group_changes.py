"""The rows that an operator asks the arbiter for. Pure.

A replica's own changes are in the broker. These are the ones that need a decision of a person:

- :func:`without` removes a replica for good.
- :func:`elected` makes a replica the master that the others did not choose. If it is not in the
  in-sync set, the new epoch is unclean: confirmed messages may be lost.
- :func:`repaired` raises a row that is older than the logs, because the arbiter has lost changes
  (rule 13). The epoch never goes below that of a log.

Each is asked for on the condition that the row has not changed since it was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from eruca.contract.broker_groups import (
    BrokerGroupPut,
    BrokerGroupView,
    Replica,
    ReplicaName,
)
from eruca.contract.errors import ConflictError, NotFoundError
from eruca.contract.replication import ReplicationStatus

AUTHOR: Final = "operator"
MASTER: Final = "master"

Statuses = Mapping[int, ReplicationStatus]
"""The statuses of the replicas that answer, by replica id."""


def replica_of(group: BrokerGroupView, replica_id: int) -> Replica:
    """Return a replica of *group*.

    Raises:
        NotFoundError: It has no such replica.
    """
    found = [replica for replica in group.replicas if replica.replica_id == replica_id]
    if not found:
        ids = ", ".join(str(replica.replica_id) for replica in group.replicas)
        raise NotFoundError(
            f"{group.broker_name} has no replica {replica_id}", fix=f"its replicas: {ids}"
        )
    return found[0]


def in_sync_ids(group: BrokerGroupView) -> list[int]:
    """Return the replica ids of the in-sync set, in order."""
    return sorted(member.replica_id for member in group.in_sync)


def leads(group: BrokerGroupView, status: ReplicationStatus) -> bool:
    """Tell whether a replica's status is that of the row's master in its term."""
    is_it = status.replica_id == group.master.replica_id
    return is_it and (status.role, status.epoch) == (MASTER, group.epoch)


def is_behind(group: BrokerGroupView, statuses: Statuses) -> bool:
    """Tell whether the arbiter has lost changes of *group* (rule 13).

    A log has a later epoch than the row, or a replica knows a later row.
    """
    row = (group.epoch, group.number)
    return any(
        status.last_epoch > group.epoch or (status.known_epoch, status.known_number) > row
        for status in statuses.values()
    )


def check_successor(group: BrokerGroupView, replica_id: int | None) -> None:
    """Check that *replica_id*, or any replica for None, may take over without loss.

    Raises:
        NotFoundError: The group has no such replica.
        ConflictError: It is the master, or it is not in sync; or no other replica is.
    """
    name = group.broker_name
    ids = in_sync_ids(group)
    if replica_id is None:
        if ids == [group.master.replica_id]:
            raise ConflictError(
                f"no other replica of {name} is in sync",
                fix=f"wait for one (eruca broker show {name}), or add one (eruca broker"
                f" add-replica {name})",
            )
        return
    replica_of(group, replica_id)
    if replica_id == group.master.replica_id:
        raise ConflictError(
            f"replica {replica_id} is the master of {name} already", fix="choose another replica"
        )
    if replica_id not in ids:
        raise ConflictError(
            f"replica {replica_id} of {name} is not in sync",
            fix=f"wait until it has caught up: eruca broker show {name}",
        )


def without(group: BrokerGroupView, replica_id: int, statuses: Statuses) -> BrokerGroupPut:
    """Return the row without a replica.

    Raises:
        NotFoundError: It has no such replica.
        ConflictError: It is the master, or it still runs and would join again.
    """
    replica_of(group, replica_id)
    if replica_id == group.master.replica_id:
        raise ConflictError(
            f"replica {replica_id} is the master of {group.broker_name}",
            fix=f"make another replica the master first: eruca broker switch {group.broker_name}",
        )
    if replica_id in statuses:
        raise ConflictError(
            f"replica {replica_id} of {group.broker_name} still runs, and would join again",
            fix="stop its process first, then repeat the command",
        )
    return _put(
        group,
        in_sync=[member for member in group.in_sync if member.replica_id != replica_id],
        replicas=[replica for replica in group.replicas if replica.replica_id != replica_id],
        reason=f"replica {replica_id} was removed",
    )


def elected(group: BrokerGroupView, replica_id: int, statuses: Statuses) -> BrokerGroupPut:
    """Return the row in which a replica is the master of a new epoch.

    A member of the in-sync set loses nothing, so its epoch is clean and the set stays. Any other
    replica becomes the set's only member, in an unclean epoch. So does each replica if the row is
    older than a log: then its set may be another one by now.

    Raises:
        NotFoundError: It has no such replica.
        ConflictError: The present master answers, or the replica does not.
    """
    replica = replica_of(group, replica_id)
    master_id = group.master.replica_id
    if (master := statuses.get(master_id)) is not None and master.role == MASTER:
        raise ConflictError(
            f"replica {master_id} answers, and is the master of {group.broker_name}",
            fix=f"hand over without loss: eruca broker switch {group.broker_name}",
        )
    if replica_id not in statuses:
        raise ConflictError(
            f"replica {replica_id} of {group.broker_name} does not answer at "
            f"{', '.join(replica.urls.values())}",
            fix="start it first, then repeat the command",
        )
    own = statuses[replica_id]
    member = ReplicaName(replica_id=replica_id, uid=own.uid or replica.uid)
    latest = max(status.last_epoch for status in statuses.values())
    is_clean = member in group.in_sync and not is_behind(group, statuses)
    return _put(
        group,
        epoch=max(group.epoch, latest, *(one.known_epoch for one in statuses.values())) + 1,
        master=member,
        in_sync=group.in_sync if is_clean else [member],
        replicas=[one.model_copy(update=_uid_of(one, statuses)) for one in group.replicas],
        unclean=not is_clean,
        reason=f"replica {replica_id} was elected"
        + ("" if is_clean else ", and the loss was accepted"),
    )


def repaired(
    broker: str,
    group: BrokerGroupView | None,
    replicas: Sequence[Replica],
    statuses: Statuses,
    *,
    accepts_loss: bool,
) -> BrokerGroupPut:
    """Return the row that fits the replicas' logs, and is later than every row (rule 13).

    A master that still runs in the latest epoch remains the master, with its in-sync set. Without
    one, the replica with the longest log of the latest epoch becomes the master, alone in the set.
    It holds everything confirmed, if every replica has reported.

    The row begins an epoch that nobody has known. Within a known one its number would be below
    those of the lost changes, and every replica would refuse it as older.

    Args:
        broker: The group's name.
        group: The row; None: the arbiter has lost it.
        replicas: Every replica of the group that is known.
        statuses: The statuses of those that answer.
        accepts_loss: Whether replicas that do not answer may hold confirmed messages.

    Raises:
        ConflictError: The row is not older than the logs, or confirmed messages may be lost.
    """
    if not statuses:
        raise ConflictError(f"no replica of {broker} answers", fix="start its brokers first")
    latest = max(status.last_epoch for status in statuses.values())
    if not (latest if group is None else is_behind(group, statuses)):
        raise ConflictError(
            f"the arbiter is not behind: no log of {broker} is beyond its epoch",
            fix="nothing to repair; to look for other faults: eruca doctor",
        )
    beyond = max(latest, *(status.known_epoch for status in statuses.values()))
    if group is not None:
        beyond = max(beyond, group.epoch)
    present = [one.model_copy(update=_uid_of(one, statuses)) for one in replicas]
    row = {
        "epoch": beyond + 1,
        "replicas": present,
        "min_in_sync": 1 if group is None else group.min_in_sync,
        "flush_mode": "async" if group is None else group.flush_mode,
        "by": AUTHOR,
    }
    for replica_id, status in statuses.items():
        # If somebody knows a later term, its master may have confirmed what this one lacks.
        if status.role == MASTER and status.epoch == beyond:
            master = _name(replica_id, status)
            return BrokerGroupPut.model_validate(
                row
                | {
                    "master": master,
                    "in_sync": status.in_sync or [master],
                    "reason": f"the arbiter was behind; replica {replica_id} is the master of "
                    f"epoch {beyond}",
                }
            )
    replica_id, best = max(
        statuses.items(), key=lambda one: (one[1].last_epoch, one[1].end, one[1].priority, -one[0])
    )
    doubt = _doubt(replicas, statuses, best)
    if doubt is not None and not accepts_loss:
        raise ConflictError(
            f"confirmed messages of {broker} may be lost: {doubt}",
            fix="start every replica, then repeat the command; or give --accept-loss",
        )
    master = _name(replica_id, best)
    return BrokerGroupPut.model_validate(
        row
        | {
            "master": master,
            "in_sync": [master],
            "unclean": doubt is not None,
            "reason": f"the arbiter was behind; replica {replica_id} has the longest log of "
            f"epoch {latest}",
        }
    )


def _doubt(replicas: Sequence[Replica], statuses: Statuses, best: ReplicationStatus) -> str | None:
    """Return why the longest log may lack confirmed records; None: it has all."""
    silent = sorted({replica.replica_id for replica in replicas} - statuses.keys())
    if silent:
        return f"replicas that do not answer: {', '.join(map(str, silent))}"
    if best.former_uids:
        return "the replica with the longest log may have lost records that were not flushed"
    return None


def missing_bytes(candidate: ReplicationStatus, statuses: Iterable[ReplicationStatus]) -> int:
    """Return the bytes of confirmed records that *candidate* lacks, as far as anybody knows.

    The candidate itself knows what its master had confirmed when it last answered.
    """
    confirmed = max(status.confirmed for status in (candidate, *statuses))
    return max(confirmed - candidate.end, 0)


def _name(replica_id: int, status: ReplicationStatus) -> ReplicaName:
    assert status.uid is not None, "a replica of a group has a uid"
    return ReplicaName(replica_id=replica_id, uid=status.uid)


def _uid_of(replica: Replica, statuses: Statuses) -> dict[str, str]:
    """Return the present uid of a replica that answers, as a change of *replica*."""
    status = statuses.get(replica.replica_id)
    return {} if status is None or status.uid is None else {"uid": status.uid}


def _put(group: BrokerGroupView, *, reason: str, **changes: object) -> BrokerGroupPut:
    fields = {
        "epoch": group.epoch,
        "master": group.master,
        "in_sync": group.in_sync,
        "replicas": group.replicas,
        "min_in_sync": group.min_in_sync,
        "flush_mode": group.flush_mode,
        "unclean": group.unclean,
    }
    put = BrokerGroupPut.model_validate({**fields, **changes, "by": AUTHOR, "reason": reason})
    assert put.epoch >= group.epoch, "the epoch never decreases"
    return put
