"""Schedules: fixed courses of a few faults, each of which shows one broken rule for certain.

A random run finds most faults, sooner or later. A schedule finds one within seconds, so that a test
can demand it. It has one broker group, one controller, and senders alone: a message that was
acknowledged and is gone in the end has not been read meanwhile.

The same schedule finds nothing in the product as it is.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from chaos import final
from chaos.client import Client, World
from chaos.cluster import CLIENTS, START_SECONDS, Cluster, Party, Shape
from chaos.history import History, Operation, Recorder
from chaos.nemeses.disks import flip_bit
from chaos.proxies import Direction, Link, Network
from chaos.workloads import consuming, sending, topics
from eruca_broker.core.replication.roles import BEHIND_SECONDS
from support.waiting import until, until_told

BROKER: Final = "broker-a"
SENDERS: Final = 4
SEND_COUNT: Final = 40  # acknowledged messages before a fault, and afterwards
READ_COUNT: Final = 8  # pulls with which readers go on, and locks
STEP_SECONDS: Final = 25.0  # for a master, or for messages; on an idle machine much less
ELECTION_SECONDS: Final = 9.0  # in which a replica that may become master does
SENDS_SECONDS: Final = 15.0  # for messages: a broken rule may let the group stand still
AFTERWARDS_SECONDS: Final = 8.0  # for replicas that catch up
READ_SECONDS: Final = 4.0  # for a queue of one replica
PATIENT_SECONDS: Final = 12.0  # for an answer: longer than a master goes on that hears nothing
SCRUB_SECONDS: Final = 2.0  # for one round through a log
LONG_SIZE: Final = 200_000  # bytes of a message that is longer than all others together


class Stage:
    """A broker group and its senders, while a schedule torments it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = world.cluster
        self.replicas = world.cluster.replicas(BROKER)
        self.answer_seconds = 1.5  # for which a sender waits
        self._sent = 0
        self._clients_at_work: list[asyncio.Task[None]] = []
        self._clients: list[Client] = []

    async def begin(self) -> None:
        """Create the topic, and let the senders begin."""
        await until_told(self._is_complete, within_seconds=START_SECONDS)
        client = self._client("prepare")
        async with asyncio.timeout(STEP_SECONDS):
            count = sending.QUEUE_COUNT  # only one of them gets messages
            while not (await topics.create(client, BROKER, sending.TOPIC, count)).is_ok:
                pass  # the client pauses
        for number in range(SENDERS):
            sender = self._client(f"sender-{number}")
            self._clients_at_work.append(asyncio.create_task(self._send(sender)))
        await self.sends()

    def read(self) -> None:
        """Let one client follow the queue, and more members lock queues than there are."""
        follower = self._client("follower")
        work = [sending.follow(follower, BROKER, sending.TOPIC, 0)]
        for number in range(sending.QUEUE_COUNT + 1):
            work.append(consuming.consume(self._client(f"member-{number}"), BROKER))
        self._clients_at_work += map(asyncio.create_task, work)

    async def are_seen(self, *, count: int = READ_COUNT) -> None:
        """Wait until the readers went on, and locked queues, so often; or for too long."""

        def is_enough() -> bool:
            history = self.world.recorder.history()
            locks = sum(lock.is_ok for lock in history.named("lock"))
            return min(locks, sum(map(_has_gone_on, history.named("pull")))) >= count

        with suppress(TimeoutError):
            await until(is_enough, within_seconds=SENDS_SECONDS)

    async def _is_complete(self) -> bool:
        """Tell whether all replicas are in sync."""
        if not self.cluster.shape.controllers:
            return True
        row = await self.cluster.row(BROKER)
        return row is not None and len(row["in_sync"]) == len(self.replicas)

    async def _send(self, client: Client) -> None:
        while not self.world.is_over.is_set():
            message = self.world.message(client.name)
            sent = await sending.send(
                client, BROKER, sending.TOPIC, 0, message, answer_seconds=self.answer_seconds
            )
            self._sent += sent.is_ok

    def send_to(self, party: Party) -> None:
        """Let the senders' next messages go to a replica."""
        self.world.masters[BROKER] = self.world.url_of(BROKER, party.replica)

    async def sends(
        self, count: int = SEND_COUNT, *, within_seconds: float = SENDS_SECONDS
    ) -> None:
        """Wait until so many more messages are acknowledged, or for too long: all may be stuck."""
        enough = self._sent + count
        with suppress(TimeoutError):
            await until(lambda: self._sent >= enough, within_seconds=within_seconds)

    async def send_long(self) -> None:
        """Send a long message, which may never be acknowledged."""
        client = self._client("long")
        message = self.world.message(client.name).ljust(LONG_SIZE, ".")
        await sending.send(client, BROKER, sending.TOPIC, 0, message)

    async def master(self, *, other_than: Party | None = None) -> Party:
        """Return the replica that leads; wait for it."""
        found: list[Party] = []

        async def is_there() -> bool:
            found[:] = [
                party
                for party in self.replicas
                if party is not other_than and await self.role(party) == "master"
            ]
            return bool(found)

        await until_told(is_there, within_seconds=STEP_SECONDS)
        return found[0]

    async def role(self, party: Party) -> str | None:
        """Return a replica's role; None without an answer."""
        status = await self.cluster.status(party) if party.is_running else None
        return None if status is None else str(status["role"])

    def inside(self, party: Party) -> list[Link]:
        """Return the links of a replica to its group and the controllers; clients reach it."""
        around = self.cluster.network.around(party.name)
        return [link for link in around if link.name.source != CLIENTS]

    def cut_from_arbiter(self, party: Party) -> None:
        """Cut a replica off from the controllers."""
        controllers = [controller.name for controller in self.cluster.controllers()]
        for link in self.cluster.network.between([party.name], controllers):
            link.cut()

    async def leave_unconfirmed(self, master: Party) -> None:
        """Let the replicas have records whose acknowledgements do not reach the master."""
        for link in self._to(master):
            link.hold(Direction.THERE)

        async def is_so() -> bool:
            own, *copies = [
                await self.cluster.status(party) for party in (master, *self.others(master))
            ]
            return own is not None and all(
                copy is not None and copy["end"] > own["confirmed"] for copy in copies
            )

        await until_told(is_so, within_seconds=STEP_SECONDS)

    async def confirm_secretly(self, master: Party) -> None:
        """Let the acknowledgements arrive, and nobody but the senders learn of it."""
        for link in self._to(master):
            link.heal()
            link.hold(Direction.BACK)
        await self.sends(1)

    def _to(self, master: Party) -> list[Link]:
        others = [party.name for party in self.others(master)]
        return self.cluster.network.between(others, [master.name])

    def others(self, master: Party) -> list[Party]:
        """Return the other replicas."""
        return [party for party in self.replicas if party is not master]

    async def kill(self, *parties: Party) -> None:
        """Kill replicas at once."""
        await asyncio.gather(*(self.cluster.stop(party, signal.SIGKILL) for party in parties))

    async def start(self, *parties: Party) -> None:
        """Start replicas again."""
        for party in parties:
            self.cluster.run(party)
        for party in parties:
            await self.cluster.until_listening(party)

    async def end(self) -> None:
        """Heal everything, end the senders, and read what there is."""
        self.cluster.network.heal()
        self.world.is_over.set()
        await asyncio.gather(*self._clients_at_work)
        await self.start(*(party for party in self.replicas if not party.is_running))
        self.world.recorder.note("final", {})
        spans = await final.caught_up(self.world, BROKER, within_seconds=AFTERWARDS_SECONDS)
        client = self._client("final")
        await final.compare_flipped(self.world, BROKER, within_seconds=AFTERWARDS_SECONDS)
        for party in self.replicas:
            await final.read_queues(client, party, {sending.TOPIC: 1}, within_seconds=READ_SECONDS)
        await final.compare_logs(self.world, BROKER, spans)

    def _client(self, name: str) -> Client:
        self._clients.append(Client(self.world, name))
        return self._clients[-1]

    async def close(self) -> None:
        """End the senders, and close all connections."""
        self.world.is_over.set()
        for task in self._clients_at_work:
            task.cancel()
        for client in self._clients:
            await client.close()

    async def rebuild(self) -> None:
        """Delete a replica's projections, and compare its answers."""
        await final.rebuild(self._client("rebuilding"), self.replicas[0])


async def calm(stage: Stage) -> None:
    """Do no harm, and look at everything."""
    stage.read()
    await stage.sends(5 * SEND_COUNT)
    # On a busy machine the senders are through before a reader has read twice.
    await stage.are_seen()


def _has_gone_on(pull: Operation) -> bool:
    """Tell whether a reader was given messages behind earlier ones: its first pull shows little."""
    return pull.is_ok and pull.asked["offset"] > 0 and bool(pull.told["messages"])


async def acknowledgements_lost(stage: Stage) -> None:
    """Let a master that hears nothing any more step down, while its replicas have its records.

    It does not reach the arbiter either: it would remove the replicas, and go on alone.
    """
    stage.answer_seconds = PATIENT_SECONDS
    await stage.sends()
    master = await stage.master()
    stage.cut_from_arbiter(master)
    await stage.leave_unconfirmed(master)
    await stage.master(other_than=master)
    await stage.sends()


async def flipped_bit(stage: Stage) -> None:
    """Flip a bit of a standby's log."""
    master = await stage.master()
    await flip_bit(stage.world, stage.others(master)[0], stage.world.random)
    await stage.sends()


async def isolated_master(stage: Stage) -> None:
    """Cut a master off from its group and the arbiter, with clients on its side."""
    master = await stage.master()
    for link in stage.inside(master):
        link.cut()
    stage.send_to(await stage.master(other_than=master))
    await stage.sends()


async def group_killed(stage: Stage) -> None:
    """Kill a group whose replicas do not know what is confirmed; the master returns last."""
    master = await stage.master()
    await stage.leave_unconfirmed(master)
    await stage.confirm_secretly(master)
    await stage.kill(*stage.replicas)
    stage.cluster.network.heal()
    await stage.start(*stage.others(master))
    await stage.sends()


async def master_killed(stage: Stage) -> None:
    """Kill a master whose replicas have records that are not confirmed yet."""
    master = await stage.master()
    await stage.leave_unconfirmed(master)
    await stage.kill(master)
    stage.cluster.network.heal()
    # If they refuse its log, the next master goes on without them once it has waited for that long.
    await stage.sends(within_seconds=ELECTION_SECONDS + BEHIND_SECONDS)


async def longer_log(stage: Stage) -> None:
    """Let an old master return with more than the new one has written."""
    master = await stage.master()
    for link in stage.inside(master):
        link.cut()
    await stage.send_long()
    await stage.master(other_than=master)
    stage.cluster.network.heal()
    await stage.sends(3 * SEND_COUNT)


async def wiped_disk(stage: Stage) -> None:
    """Kill a group, and start a replica with an empty disk before the others."""
    master = await stage.master()
    wiped, *_ = stage.others(master)
    await stage.kill(*stage.replicas)
    await stage.cluster.wipe(wiped)
    await stage.start(wiped)

    async def leads() -> bool:
        return await stage.role(wiped) in ("taking over", "master")

    with suppress(TimeoutError):
        await until_told(leads, within_seconds=ELECTION_SECONDS)
    await stage.start(*stage.others(wiped))
    await stage.sends()


class Schedule(NamedTuple):
    """A course of faults, and the group that it needs."""

    run: Callable[[Stage], Awaitable[None]]
    replicas: int = 3
    min_in_sync: int = 2
    controllers: int = 1
    has_election: bool = True  # which takes seconds: more than most tests should


SCHEDULES: Final[dict[str, Schedule]] = {
    "calm": Schedule(calm, replicas=1, controllers=0, has_election=False),
    "acknowledgements lost": Schedule(acknowledgements_lost),
    "flipped bit": Schedule(flipped_bit, has_election=False),
    "isolated master": Schedule(isolated_master),
    "group killed": Schedule(group_killed),
    "master killed": Schedule(master_killed),
    "longer log": Schedule(longer_log, replicas=2, min_in_sync=1),
    "wiped disk": Schedule(wiped_disk),
}


async def follow_schedule(name: str, directory: Path, *, mutation: str = "") -> History:
    """Run a schedule in an empty directory, with a rule broken if one is named."""
    schedule = SCHEDULES[name]
    shape = Shape(
        brokers=(BROKER,),
        replicas=schedule.replicas,
        controllers=schedule.controllers,
        min_in_sync=schedule.min_in_sync,
        settings={"ERUCA_BROKER_SCRUB_HOURS": str(SCRUB_SECONDS / 3600)},
    )
    network = Network()
    cluster = Cluster(directory, network, shape, mutation=mutation)
    with Recorder(directory / "history.jsonl") as recorder:
        stage = Stage(World(cluster, recorder, Random(name)))
        note = {"seed": name, "brokers": [BROKER], "replicas": shape.replicas, "mutation": mutation}
        recorder.note("run", note)
        try:
            await network.start()
            await cluster.start()
            await stage.begin()
            await schedule.run(stage)
            await stage.end()
            if not schedule.controllers:
                await stage.rebuild()
        finally:
            await stage.close()
            await cluster.close()
            await network.close()
        return recorder.history()
