"""Faults of the arbiter: its controllers, the PostgreSQL behind them, and a memory that is lost."""

from __future__ import annotations

import asyncio
import signal
from typing import ClassVar

from chaos.arbiters import PostgresStore
from chaos.cluster import Party, Shape
from chaos.nemeses.nemesis import Nemesis
from chaos.nemeses.processes import Ended, Paused
from chaos.operators import repair_arbiter


class KillController(Ended):
    """SIGKILL to one controller, or to all of them."""

    name = "kill controller"
    needs_copies = True

    async def victims(self) -> list[Party]:
        controllers = self.cluster.controllers()
        return controllers if self.random.random() < 0.5 else [self.random.choice(controllers)]


class StopController(KillController):
    """SIGTERM to one controller, or to all of them: held requests are answered first."""

    name = "stop controller"
    by = signal.SIGTERM


class PauseController(Paused):
    """SIGSTOP to a controller: requests to it are accepted, and not answered."""

    name = "pause controller"
    needs_copies = True

    async def victim(self) -> Party:
        return self.random.choice(self.cluster.controllers())


class _Postgres(Nemesis):
    """A fault of the database server."""

    needs_copies = True

    @classmethod
    def fits(cls, shape: Shape) -> bool:
        return super().fits(shape) and shape.arbiter == "postgres"

    @property
    def store(self) -> PostgresStore:
        """The server."""
        assert isinstance(self.cluster.arbiter, PostgresStore)
        return self.cluster.arbiter

    async def heal(self) -> None:
        await asyncio.to_thread(self.store.start)


class KillPostgres(_Postgres):
    """SIGKILL to all processes of PostgreSQL, which recovers when it starts again."""

    name = "kill PostgreSQL"

    async def begin(self) -> str:
        await asyncio.to_thread(self.store.kill)
        return ""


class StopPostgres(_Postgres):
    """An orderly stop of PostgreSQL."""

    name = "stop PostgreSQL"

    async def begin(self) -> str:
        await asyncio.to_thread(self.store.stop)
        return ""


class PausePostgres(_Postgres):
    """SIGSTOP to all processes of PostgreSQL: changes are under way, and are made when it heals."""

    name = "pause PostgreSQL"
    seconds = (1.0, 15.0)

    async def begin(self) -> str:
        await asyncio.to_thread(self.store.pause)
        return ""


class ArbiterBackInTime(Nemesis):
    """The arbiter's store is restored from an older copy, and an operator repairs each row."""

    name = "arbiter back in time"
    needs_copies = True
    heals_last = True  # the operator needs the answer of every replica
    seconds = (8.0, 15.0)  # the others elect a master, of which the copy knows nothing
    KILLED: ClassVar[float] = 0.5  # the part of the cases in which the master is killed

    async def begin(self) -> str:
        """Copy the store, and have something change that it will forget."""
        await asyncio.to_thread(self.cluster.arbiter.keep_copy)
        self._master = await self.master_of(self.any_broker())
        self._is_killed = self.random.random() < self.KILLED
        if self._is_killed:
            await self.cluster.stop(self._master, signal.SIGKILL)
        else:
            self.cluster.pause(self._master)
        return f"copied; {self._master.name} {'killed' if self._is_killed else 'paused'}"

    async def heal(self) -> None:
        """Restore the copy; the former master comes back, and then the operator is called."""
        controllers = self.cluster.controllers()
        await asyncio.gather(*(self.cluster.stop(one, signal.SIGKILL) for one in controllers))
        await asyncio.to_thread(self.cluster.arbiter.restore_copy)
        self.world.recorder.note("arbiter-restored", {"brokers": list(self.cluster.shape.brokers)})
        for party in controllers:
            self.cluster.run(party)
        if self._is_killed:
            self.cluster.run(self._master)
        else:
            self.cluster.resume(self._master)
        for party in self.cluster.parties.values():
            await self.cluster.until_listening(party)
        for broker in self.cluster.shape.brokers:
            is_repaired = await repair_arbiter(self.world, broker)
            self.world.recorder.note("repaired", {"broker": broker, "is_done": is_repaired})


class ArbiterForgetsSet(Nemesis):
    """The arbiter is restored from a copy of the same epoch, which names a removed member again."""

    name = "arbiter forgets the set"
    needs_copies = True
    heals_last = True  # as above
    seconds = (8.0, 12.0)  # the master removes the member

    async def begin(self) -> str:
        """Copy the store, and have the master remove another replica."""
        await asyncio.to_thread(self.cluster.arbiter.keep_copy)
        broker = self.any_broker()
        master = await self.master_of(broker)
        others = [one for one in self.cluster.replicas(broker) if one != master]
        self._removed = self.random.choice(others)
        await self.cluster.stop(self._removed, signal.SIGKILL)
        return f"copied; {self._removed.name} killed"

    async def heal(self) -> None:
        """Restore the copy, and start the removed member; the master repairs the row."""
        controllers = self.cluster.controllers()
        await asyncio.gather(*(self.cluster.stop(one, signal.SIGKILL) for one in controllers))
        await asyncio.to_thread(self.cluster.arbiter.restore_copy)
        self.world.recorder.note("arbiter-restored", {"brokers": list(self.cluster.shape.brokers)})
        for party in [*controllers, self._removed]:
            self.cluster.run(party)
        for party in self.cluster.parties.values():
            await self.cluster.until_listening(party)
        # Its master repairs the row by itself, unless another fault has ended it.
        broker = self._removed.broker
        is_repaired = await repair_arbiter(self.world, broker)
        self.world.recorder.note("repaired", {"broker": broker, "is_done": is_repaired})
