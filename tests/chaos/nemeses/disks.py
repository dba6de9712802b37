"""Faults of disks: power cuts, a full disk, one that fails or is slow, bits that flip."""

from __future__ import annotations

import asyncio
import signal
from random import Random

from chaos.client import World
from chaos.cluster import SEGMENT_BYTES, Party, Shape
from chaos.controls import Disk
from chaos.nemeses.nemesis import Nemesis

PAGE_SIZE = 4096


def lose_unflushed(party: Party, random: Random) -> str:
    """Leave of a log what a power cut leaves: everything durable, and any pages behind it.

    The kernel writes pages in any order. So some of those behind the durable offset are there, and
    others have zeros.
    """
    durable, written = party.controls.durable_offset, party.controls.written_offset
    lost = 0
    keeps_order = random.random() < 0.5
    cut = random.randint(durable, max(durable, written))
    for path in sorted((party.directory / "commitlog").iterdir()):
        base, size = int(path.name), path.stat().st_size
        for page in range(max(durable - base, 0) // PAGE_SIZE * PAGE_SIZE, size, PAGE_SIZE):
            start, end = max(base + page, durable), min(base + page + PAGE_SIZE, written)
            is_lost = start >= cut if keeps_order else random.random() < 0.5
            if keeps_order and start < cut < end:
                start, is_lost = cut, True
            if start < end and is_lost:
                with path.open("r+b") as file:
                    file.seek(start - base)
                    file.write(bytes(end - start))
                lost += end - start
    party.controls.written_offset = durable
    return f"{lost} of {written - durable} unflushed bytes lost"


class PowerCut(Nemesis):
    """The power of one machine fails: unflushed pages are lost, and the kernel is another."""

    name = "power cut"
    needs_copies = True

    async def victims(self) -> list[Party]:
        """Return the machines that lose their power."""
        broker = self.any_broker()
        is_master = self.random.random() < 0.5
        return [await self.master_of(broker) if is_master else self.any_replica(broker)]

    async def begin(self) -> str:
        self._ended = [party for party in await self.victims() if party.is_running]
        await asyncio.gather(*(self.cluster.stop(p, signal.SIGKILL) for p in self._ended))
        losses = []
        for party in self._ended:
            losses.append(f"{party.name}: {lose_unflushed(party, self.random)}")
            party.boot_id = f"boot-{self.random.randrange(2**32):08x}"
        return "; ".join(losses)

    async def heal(self) -> None:
        for party in self._ended:
            self.cluster.run(party)
        for party in self._ended:
            await self.cluster.until_listening(party)


class PowerCutOfAll(PowerCut):
    """The power of all machines of a group fails at once: only flushed records are promised."""

    name = "power cut of all"

    @classmethod
    def fits(cls, shape: Shape) -> bool:
        return super().fits(shape) and shape.flush_mode == "sync"

    async def victims(self) -> list[Party]:
        return self.cluster.replicas(self.any_broker())


class _Disk(Nemesis):
    """A disk in another state; a broker whose disk failed is started again when it heals."""

    def state(self) -> Disk:
        """Return the state of the disk meanwhile."""
        raise NotImplementedError

    async def begin(self) -> str:
        self._party = self.any_replica()
        state = self._party.controls.disk = self.state()
        return f"{self._party.name}: {state.name.lower().replace('_', ' ')}"

    async def heal(self) -> None:
        party = self._party
        state = party.controls.disk
        party.controls.disk = Disk.SOUND
        if state in (Disk.FAILING_FLUSHES, Disk.FAILING_WRITES):
            # A failed flush is final until a restart, by the store's own rule.
            await self.cluster.stop(party, signal.SIGKILL)
        self.cluster.run(party)
        await self.cluster.until_listening(party)


class FullDisk(_Disk):
    """No space is left."""

    name = "full disk"

    def state(self) -> Disk:
        return Disk.FULL


class FailingDisk(_Disk):
    """Writes or flushes end with EIO."""

    name = "failing disk"

    def state(self) -> Disk:
        return self.random.choice((Disk.FAILING_WRITES, Disk.FAILING_FLUSHES))


class SlowDisk(_Disk):
    """Flushes take nearly half a second."""

    name = "slow disk"

    def state(self) -> Disk:
        return Disk.SLOW


class FlippedBit(Nemesis):
    """A bit of a standby's log flips on its disk, in a part that is confirmed.

    Each replica's scrub reads the whole log every :data:`~chaos.cluster.SCRUB_SECONDS`.
    """

    name = "flipped bit"
    needs_copies = True
    seconds = (0.0, 2.0)

    async def begin(self) -> str:
        master = await self.master_of(self.any_broker())
        party = self.random.choice(self.others(master))
        offset = await flip_bit(self.world, party, self.random)
        return f"{party.name} at {offset}" if offset is not None else "nothing to flip"

    async def heal(self) -> None:
        """Do nothing: the replica shall repair it from its peers."""


async def flip_bit(world: World, party: Party, random: Random) -> int | None:
    """Flip a bit of what a replica has confirmed; return its log offset, or None."""
    status = await world.cluster.status(party)
    if status is None or status["confirmed"] <= status["min_offset"]:
        return None
    offset = random.randrange(status["min_offset"], status["confirmed"])
    base = offset - offset % SEGMENT_BYTES
    with (party.directory / "commitlog" / f"{base:020d}").open("r+b") as file:
        file.seek(offset - base)
        [byte] = file.read(1)
        file.seek(offset - base)
        file.write(bytes([byte ^ 1 << random.randrange(8)]))
    value = {"broker": party.broker, "replica": party.replica, "offset": offset, "pid": party.pid}
    world.recorder.note("flipped", value)
    return offset
