"""Changes of the membership: another master, replicas that leave and return, replaced disks."""

from __future__ import annotations

import signal

from chaos.cluster import Shape
from chaos.nemeses.nemesis import Nemesis
from chaos.operators import COMMAND_SECONDS, eruca, wipe


class WipedDisk(Nemesis):
    """A replica comes back with an empty disk under its old id (Kafka's KIP-903)."""

    name = "wiped disk"
    needs_copies = True

    async def begin(self) -> str:
        self._party = self.any_replica()
        await wipe(self.world, self._party)
        return self._party.name

    async def heal(self) -> None:
        self.cluster.run(self._party)
        await self.cluster.until_listening(self._party)


class WipedDiskInPartition(WipedDisk):
    """The same, and it starts while its master is cut off from the other replicas."""

    name = "wiped disk in partition"
    needs_copies = True

    async def begin(self) -> str:
        broker = self.any_broker()
        master = await self.master_of(broker)
        self._party = self.random.choice(self.others(master))
        await wipe(self.world, self._party)
        network = self.cluster.network
        others = [one.name for one in self.others(master)]
        self._links = [
            *network.between([master.name], others),
            *network.between(others, [master.name]),
        ]
        for link in self._links:
            link.cut()
        self.cluster.run(self._party)
        return f"{self._party.name}, {master.name} cut off"

    async def heal(self) -> None:
        for link in self._links:
            link.heal()
        await self.cluster.until_listening(self._party)


class WipedDiskAlone(WipedDisk):
    """All replicas of a group are killed, and a wiped one starts before the others."""

    name = "wiped disk alone"
    needs_copies = True
    seconds = (10.0, 12.0)  # in which it could elect itself

    async def begin(self) -> str:
        broker = self.any_broker()
        master = await self.master_of(broker)
        self._party = self.random.choice(self.others(master))
        self._rest = self.others(self._party)
        for party in self._rest:
            await self.cluster.stop(party, signal.SIGKILL)
        await wipe(self.world, self._party)
        self.cluster.run(self._party)
        return self._party.name

    async def heal(self) -> None:
        for party in self._rest:
            self.cluster.run(party)
        for party in [self._party, *self._rest]:
            await self.cluster.until_listening(party)


class Switch(Nemesis):
    """The master hands over, by the command or by its route, to any replica or to a certain one."""

    name = "switch"
    needs_copies = True
    seconds = (0.0, 2.0)

    async def begin(self) -> str:
        master = await self.master_of(self.any_broker())
        to = self.random.choice([None, self.random.choice(self.others(master)).replica])
        target = "any" if to is None else str(to)
        if self.random.random() < 0.5:
            options = [] if to is None else ["--to", str(to)]
            done = await eruca(self.world, "broker", "switch", master.broker, *options)
            return f"{master.name} to {target}, by the command: {done.code}"
        answer = await self.cluster.ask(
            master, "POST", "/v1/replication/switch", body={"to": to}, timeout=COMMAND_SECONDS
        )
        status = "no answer" if answer is None else answer.status
        return f"{master.name} to {target}, by its route: {status}"

    async def heal(self) -> None:
        """Do nothing: another master is no fault."""


class RemovedReplica(Nemesis):
    """A replica is removed from its group by the command, and added again with the same store."""

    name = "removed replica"
    needs_copies = True

    async def begin(self) -> str:
        master = await self.master_of(self.any_broker())
        self._party = self.random.choice(self.others(master))
        by = self.random.choice((signal.SIGTERM, signal.SIGKILL))
        await self.cluster.stop(self._party, by)
        return f"{self._party.name}: {await self.remove()}"

    async def remove(self) -> int | None:
        """Remove the replica; return the command's exit code."""
        party = self._party
        replica = ("--replica", str(party.replica))
        done = await eruca(self.world, "broker", "remove-replica", party.broker, *replica, "--yes")
        return done.code

    async def heal(self) -> None:
        party = self._party
        self.cluster.run(party)
        await self.cluster.until_listening(party)
        replica = ("--replica", str(party.replica))
        await eruca(self.world, "broker", "add-replica", party.broker, *replica)


class ReplacedReplica(RemovedReplica):
    """A replica is removed, and added again under the same id with an empty store."""

    name = "replaced replica"

    async def heal(self) -> None:
        await wipe(self.world, self._party)
        await super().heal()


class ReplacedReplicaInPartition(ReplacedReplica):
    """The same while the master and the third replica do not reach each other (NATS' 7545)."""

    name = "replaced replica in partition"

    @classmethod
    def fits(cls, shape: Shape) -> bool:
        return super().fits(shape) and shape.replicas == 3

    async def begin(self) -> str:
        text = await super().begin()
        network = self.cluster.network
        one, other = (party.name for party in self.others(self._party))
        self._links = [*network.between([one], [other]), *network.between([other], [one])]
        for link in self._links:
            link.cut()
        await wipe(self.world, self._party)
        self.cluster.run(self._party)  # it joins, or tries to, before the partition heals
        return f"{text}; {one} and {other} cut off"

    async def heal(self) -> None:
        for link in self._links:
            link.heal()
        await RemovedReplica.heal(self)
