"""Switching: let another replica become master, because an operator wants it."""

from __future__ import annotations

from eruca.contract.broker_groups import ReplicaName
from eruca.contract.errors import ConflictError
from eruca.contract.replication import SwitchResult
from eruca_broker.processors.replication.supervisor import Supervisor


class Switching:
    """Hands over to another replica.

    Args:
        supervisor: Of this replica; None: the broker has no replicas.
    """

    def __init__(self, supervisor: Supervisor | None) -> None:
        self.supervisor = supervisor

    async def to(self, replica_id: int | None) -> SwitchResult:
        """Hand over to a replica; None: to the one that has acknowledged most.

        Raises:
            ConflictError: There is no such replica in sync.
            UnavailableError: This replica is not the master, or remains it.
        """
        if self.supervisor is None:
            raise ConflictError(
                "this broker has no replicas",
                fix="set ERUCA_BROKER_CONTROLLER_URLS, and start a second broker of its name",
            )
        row = await self.supervisor.hand_over(replica_id)
        master = row.group.master
        return SwitchResult(
            epoch=row.group.epoch,
            master=ReplicaName(replica_id=master.replica_id, uid=master.uid),
            master_urls=row.row.urls_of(master),
        )
