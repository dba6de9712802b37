"""The replicas of a broker: registered ones with their own answers, and those that are away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eruca.contract.broker_groups import BrokerGroupView
from eruca.contract.replication import ReplicationStatus
from eruca.contract.routes import BrokerAddress
from eruca_console.cluster.outcomes import Outcome

MASTER = "master"
LEARNER = "learner"


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A replica of a broker.

    Attributes:
        broker_name: The broker.
        replica_id: Its number in the group; None: the broker is alone, or the number is unknown.
        address: Its registration; None: name servers know none.
        status: Its own answer.
        master_end: The end of the master's log; None: unknown.
    """

    broker_name: str
    replica_id: int | None
    address: BrokerAddress | None
    status: Outcome[ReplicationStatus]
    master_end: int | None

    @property
    def is_away(self) -> bool:
        """True if no process is registered."""
        return self.address is None

    @property
    def is_master(self) -> bool:
        """True if it is registered as the master."""
        return self.address is not None and self.address.role == MASTER

    @property
    def is_in_sync(self) -> bool | None:
        """True if it holds everything that is confirmed; None: unknown."""
        return None if self.address is None else self.address.role != LEARNER

    @property
    def end(self) -> int | None:
        """The log offset after its last record; None: unknown."""
        return None if self.status.value is None else self.status.value.end

    @property
    def behind_bytes(self) -> int | None:
        """The bytes that the master has more; None: unknown. The two are asked one by one."""
        if self.end is None or self.master_end is None:
            return None
        return max(self.master_end - self.end, 0)

    @property
    def problem(self) -> str:
        """The reason why it does not answer or follow, in its server's words; empty: none."""
        if self.status.error is not None:
            return self.status.error.detail
        following = None if self.status.value is None else self.status.value.following
        return (following.reason or "") if following is not None else ""

    @property
    def urls(self) -> Sequence[str]:
        """Its URLs, one for each network."""
        return [] if self.address is None else [*self.address.urls.values()]


def replica_rows(
    broker_name: str,
    addresses: Iterable[tuple[BrokerAddress, Outcome[ReplicationStatus]]],
    row: BrokerGroupView | None = None,
) -> list[ReplicaRow]:
    """Return the replicas of a broker, the master first.

    Args:
        broker_name: The broker.
        addresses: Its registrations, each with the answer of its process.
        row: The arbiter's row, which also names replicas that are away; None: unknown.
    """
    found = [*addresses]
    ends = [one.value.end for address, one in found if address.role == MASTER and one.value]
    end = ends[0] if ends else None
    rows = [
        ReplicaRow(broker_name, address.replica_id, address, status, end)
        for address, status in found
    ]
    registered = {one.replica_id for one in rows}
    if row is not None:
        rows += [
            ReplicaRow(broker_name, one.replica_id, None, Outcome(), end)
            for one in row.replicas
            if one.replica_id not in registered
        ]
    return sorted(rows, key=lambda one: (not one.is_master, one.replica_id or 0))
