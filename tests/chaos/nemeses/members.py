"""Faults of the membership: a replaced disk under the old id, and an arbiter that forgot."""

from __future__ import annotations

import shutil
import signal

from chaos.cluster import Party
from chaos.nemeses.nemesis import Nemesis


class WipedDisk(Nemesis):
    """A replica comes back with an empty disk under its old id (Kafka's KIP-903)."""

    name = "wiped disk"
    needs_copies = True

    async def begin(self) -> str:
        self._party = self.any_replica()
        await self.wipe(self._party)
        return self._party.name

    async def wipe(self, party: Party) -> None:
        """Kill the replica and empty its disk."""
        await self.cluster.stop(party, signal.SIGKILL)
        self.cluster.wipe(party)
        value = {"broker": party.broker, "replica": party.replica}
        self.world.recorder.note("wiped", value)

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
        await self.wipe(self._party)
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
        await self.wipe(self._party)
        self.cluster.run(self._party)
        return self._party.name

    async def heal(self) -> None:
        for party in self._rest:
            self.cluster.run(party)
        for party in [self._party, *self._rest]:
            await self.cluster.until_listening(party)


class ArbiterBackInTime(Nemesis):
    """The arbiter's table is restored from an older copy, as a database after a bad fail-over."""

    name = "arbiter back in time"
    needs_copies = True
    is_on_demand = True  # an operator has to repair the arbiter afterwards
    seconds = (5.0, 15.0)

    async def begin(self) -> str:
        """Copy the table, and have something change that it will forget."""
        self._copy = self.cluster.directory / "arbiter.copy"
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.cluster.directory / "arbiter", self._copy)
        self._master = await self.master_of(self.any_broker())
        await self.cluster.stop(self._master, signal.SIGKILL)
        return f"copied; {self._master.name} killed"

    async def heal(self) -> None:
        controllers = self.cluster.controllers()
        for party in controllers:
            await self.cluster.stop(party, signal.SIGKILL)
        arbiter = self.cluster.directory / "arbiter"
        shutil.rmtree(arbiter)
        shutil.copytree(self._copy, arbiter)
        for party in [*controllers, self._master]:
            if not party.is_running:
                self.cluster.run(party)
        for party in [*controllers, self._master]:
            await self.cluster.until_listening(party)
        note = {"brokers": list(self.cluster.shape.brokers)}
        self.world.recorder.note("arbiter-restored", note)
