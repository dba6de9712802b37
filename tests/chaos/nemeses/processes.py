"""Faults of processes: killed, stopped in order, paused, and with a wrong clock."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import ClassVar

from chaos.cluster import Party
from chaos.nemeses.nemesis import Nemesis


class Ended(Nemesis):
    """Processes that are ended, and started again when it heals."""

    by: ClassVar[signal.Signals] = signal.SIGKILL

    async def victims(self) -> list[Party]:
        """Return the processes to end."""
        raise NotImplementedError

    async def begin(self) -> str:
        self._ended = [party for party in await self.victims() if party.is_running]
        await asyncio.gather(*(self.cluster.stop(party, self.by) for party in self._ended))
        return ", ".join(party.name for party in self._ended)

    async def heal(self) -> None:
        for party in self._ended:
            self.cluster.run(party)
        for party in self._ended:
            await self.cluster.until_listening(party)


class KillMaster(Ended):
    """SIGKILL to a master."""

    name = "kill master"

    async def victims(self) -> list[Party]:
        return [await self.master_of(self.any_broker())]


class KillReplica(Ended):
    """SIGKILL to a replica, which may be the master."""

    name = "kill replica"

    async def victims(self) -> list[Party]:
        return [self.any_replica()]


class KillGroup(Ended):
    """SIGKILL to all replicas of a group at once."""

    name = "kill group"

    async def victims(self) -> list[Party]:
        return self.cluster.replicas(self.any_broker())


class KillGroupMasterLast(KillGroup):
    """SIGKILL to all replicas of a group; the others start without the one that was master."""

    name = "kill group, master last"
    needs_copies = True
    seconds = (0.0, 1.0)
    ALONE_SECONDS: ClassVar[float] = 12.0  # longer than it takes the others to elect a master

    async def victims(self) -> list[Party]:
        self._master = await self.master_of(self.any_broker())
        return self.cluster.replicas(self._master.broker)

    async def heal(self) -> None:
        for party in self._ended:
            if party is not self._master:
                self.cluster.run(party)
        await asyncio.sleep(self.ALONE_SECONDS)  # in which the others go on without it
        await super().heal()


class StopMaster(Ended):
    """SIGTERM to a master: it hands over first."""

    name = "stop master"
    by = signal.SIGTERM

    async def victims(self) -> list[Party]:
        return [await self.master_of(self.any_broker())]


class RollingRestart(Nemesis):
    """SIGTERM to each replica of a group in turn, and a start of each before the next."""

    name = "rolling restart"
    seconds = (0.0, 1.0)

    async def begin(self) -> str:
        broker = self.any_broker()
        for party in self.cluster.replicas(broker):
            if party.is_running:
                await self.cluster.stop(party, signal.SIGTERM)
                self.cluster.run(party)
                await self.cluster.until_listening(party)
        return broker

    async def heal(self) -> None:
        """Do nothing: all of them run again."""


class Paused(Nemesis):
    """A process that is suspended, and goes on when it heals."""

    seconds = (1.0, 15.0)

    async def victim(self) -> Party:
        """Return the process to suspend."""
        raise NotImplementedError

    async def begin(self) -> str:
        self._paused = await self.victim()
        self.cluster.pause(self._paused)
        return self._paused.name

    async def heal(self) -> None:
        self.cluster.resume(self._paused)


class PauseMaster(Paused):
    """SIGSTOP to a master, as if its machine were suspended; it wakes as an old master."""

    name = "pause master"

    async def victim(self) -> Party:
        return await self.master_of(self.any_broker())


class PauseReplica(Paused):
    """SIGSTOP to a replica."""

    name = "pause replica"

    async def victim(self) -> Party:
        return self.any_replica()


class WrongClock(Nemesis):
    """A wall clock that is set wrong, drifts, or jumps to and fro, within what is tolerated."""

    name = "wrong clock"
    SECONDS_MAX: ClassVar[float] = 1.5

    async def begin(self) -> str:
        self._party = self.any_replica()
        controls = self._party.controls
        kind = self.random.choice(("ahead", "behind", "drift", "strobe"))
        offset_ms = round(1_000 * self.random.uniform(0.2, self.SECONDS_MAX))
        self._strobe: asyncio.Task[None] | None = None
        if kind == "drift":
            controls.drifts_since = time.monotonic()
            controls.clock_rate = self.random.uniform(-0.1, 0.1)
        elif kind == "strobe":
            self._strobe = asyncio.create_task(self._jump(offset_ms))
        else:
            controls.clock_offset_ms = offset_ms if kind == "ahead" else -offset_ms
        return f"{self._party.name}: {kind}, {offset_ms} ms"

    async def _jump(self, offset_ms: int) -> None:
        while True:
            self._party.controls.clock_offset_ms = self.random.randint(-offset_ms, offset_ms)
            await asyncio.sleep(0.1)  # the rate of the strobe

    async def heal(self) -> None:
        if self._strobe is not None:
            self._strobe.cancel()
        self._party.controls.heal()


class Nothing(Nemesis):
    """No fault: the control of an experiment."""

    name = "nothing"
    is_on_demand = True

    async def begin(self) -> str:
        return ""

    async def heal(self) -> None:
        """Do nothing."""
