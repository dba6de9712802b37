"""A run: a cluster, clients, faults by a seeded schedule, the final phase, and the history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from chaos import final
from chaos.checkers.readers import unhandled
from chaos.client import Client, World
from chaos.cluster import Cluster, Shape
from chaos.history import History, Recorder
from chaos.nemeses import NEMESES
from chaos.nemeses.nemesis import Nemesis
from chaos.observing import observe
from chaos.operators import cut_damage
from chaos.proxies import Network
from chaos.workloads import consuming, deciding, delivering, sdk, sending, topics
from support.waiting import until_told

CLOCK_SKEW_SECONDS: Final = 3.5  # twice what a nemesis sets a clock wrong by, and the machine's own
LOCK_MARGIN_SECONDS: Final = 0.5  # of a member's session
CALM_SECONDS: Final = (1.0, 6.0)  # between two faults
LONG_CALM_SECONDS: Final = 33.0  # now and then, so that liveness is seen during the run
LONG_CALM_EVERY: Final = 12  # faults
HANDLED_SECONDS: Final = 45.0  # a queue may have to wait for a session that is over, and for locks


STANDARD: Final = Shape()


@dataclass(frozen=True)
class Plan:
    """The course of a run.

    Attributes:
        seed: Of all its choices.
        seconds: The time in which faults begin.
        nemeses: Names of the faults to choose from, "a+b" for two at a time; empty: all that fit,
            and at times two of them.
        mutation: The rule that is broken in each replica; empty: none.
        load: Senders of each kind for each group.
    """

    seed: int
    seconds: float
    shape: Shape = STANDARD
    nemeses: Sequence[str] = ()
    mutation: str = ""
    load: int = 1


async def run(plan: Plan, directory: Path) -> History:
    """Run *plan* in an empty directory; return its history, which is also written there."""
    random = Random(plan.seed)
    network = Network()
    cluster = Cluster(directory, network, plan.shape, mutation=plan.mutation)
    with Recorder(directory / "history.jsonl") as recorder:
        world = World(cluster, recorder, random)
        recorder.note(
            "run",
            {
                "seed": plan.seed,
                "seconds": plan.seconds,
                "brokers": list(plan.shape.brokers),
                "replicas": plan.shape.replicas,
                "min_in_sync": plan.shape.min_in_sync,
                "flush_mode": plan.shape.flush_mode,
                "arbiter": plan.shape.arbiter,
                "retention_seconds": plan.shape.retention_seconds,
                "followed": list(final.TOPICS),
                "mutation": plan.mutation,
                "clock_skew_seconds": CLOCK_SKEW_SECONDS,
                "lock_margin_seconds": LOCK_MARGIN_SECONDS,
                "at_least_once": [sdk.TOPIC],
                "handled": [sdk.TOPIC],
            },
        )
        try:
            await network.start()
            await cluster.start()
            await _live(plan, world)
        finally:
            await cluster.close()
            await network.close()
        return recorder.history()


async def _live(plan: Plan, world: World) -> None:
    left_open: dict[str, dict[str, str]] = {broker: {} for broker in plan.shape.brokers}
    names: dict[str, list[str]] = {broker: [] for broker in plan.shape.brokers}
    await _prepare(world)
    observing = asyncio.create_task(observe(world))
    clients: list[Client] = []
    load: list[asyncio.Task[None]] = []

    def begin(name: str, work: Any, *arguments: Any) -> None:  # noqa: ANN401 - a workload
        client = Client(world, name)
        clients.append(client)
        load.append(asyncio.create_task(work(client, *arguments)))

    for broker in plan.shape.brokers:
        for number in range(1, plan.load + 1):
            begin(f"plain-{broker}-{number}", sending.send_plain, broker)
            begin(f"keyed-{broker}-{number}", sending.send_keyed, broker)
        for queue_id in range(sending.QUEUE_COUNT):
            begin(f"follow-{broker}-{queue_id}", sending.follow, broker, sending.TOPIC, queue_id)
        for topic in (deciding.DELAYED_TOPIC, deciding.PAID_TOPIC):
            for queue_id in range(deciding.QUEUE_COUNT):
                begin(
                    f"follow-{broker}-{topic}-{queue_id}", sending.follow, broker, topic, queue_id
                )
        for number in (1, 2):
            begin(f"member-{broker}-{number}", consuming.consume, broker)
            begin(f"courier-{broker}-{number}", delivering.carry, broker)
        begin(f"commits-{broker}", consuming.watch_commits, broker)
        begin(f"parcels-{broker}", delivering.send_parcels, broker)
        begin(f"delayed-{broker}", deciding.send_delayed, broker)
        begin(f"shop-{broker}", deciding.transact, broker, left_open[broker])
        begin(f"passing-{broker}", topics.come_and_go, broker, names[broker])
    begin("sdk", sdk.produce)
    handling = []
    for number in (1, 2):
        client = Client(world, f"handler-{number}")
        handling.append(asyncio.create_task(sdk.handle(client)))
    failing = asyncio.gather(*load, *handling, observing)
    try:
        await _unless(failing, _torment(plan, world))
        await _unless(failing, final.recover(world))
        world.is_over.set()
        world.recorder.note("end", {})
        await asyncio.gather(*load)
        await deciding.until_due()
        await until_handled(world)
        world.handled.set()
        await asyncio.gather(*handling)
        await final.look(world, left_open, names)
        world.settled.set()
        await observing
    finally:
        failing.cancel()
        for client in clients:
            await client.close()


async def _unless(failing: asyncio.Future[Any], work: Coroutine[Any, Any, None]) -> None:
    """Do *work*, unless a client fails of itself: an error of the harness ends the run."""
    working = asyncio.ensure_future(work)
    await asyncio.wait([failing, working], return_when=asyncio.FIRST_COMPLETED)
    if failing.done() and not working.done():
        working.cancel()
        failing.result()
    await working


async def until_handled(world: World) -> None:
    """Wait until the handlers have seen every message that the SDK has sent, or for too long."""

    def is_done() -> bool:
        return not list(unhandled(world.recorder.history()))

    with suppress(TimeoutError):  # the checker judges it
        await until_told(_told(is_done), within_seconds=HANDLED_SECONDS)


def _told(ask: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def told() -> bool:
        return await asyncio.to_thread(ask)

    return told


async def _prepare(world: World) -> None:
    """Create the topics that stay."""
    for broker in world.cluster.shape.brokers:
        client = Client(world, f"prepare-{broker}")
        for topic, queue_count in final.TOPICS.items():
            async with asyncio.timeout(60):
                while not (await topics.create(client, broker, topic, queue_count)).is_ok:
                    pass  # the client pauses
        await client.close()


async def _torment(plan: Plan, world: World) -> None:
    """Let faults begin and heal, one after the other and at times two at a time."""
    random = Random(f"faults of {plan.seed}")
    named = plan.nemeses or [name for name, one in NEMESES.items() if not one.is_on_demand]
    possible = [
        kinds
        for kinds in ([NEMESES[part] for part in name.split("+")] for name in named)
        if all(kind.fits(plan.shape) for kind in kinds)
    ]
    deadline = time.monotonic() + plan.seconds
    count = 0
    while time.monotonic() < deadline and possible:
        await asyncio.sleep(random.uniform(*CALM_SECONDS))  # calm
        chosen = list(random.choice(possible))
        if not plan.nemeses and random.random() < 0.2:
            chosen += random.choice(possible)
        await _strike([kind(world, random) for kind in chosen], random, deadline)
        count += 1
        if count % LONG_CALM_EVERY == 0 and deadline - time.monotonic() > LONG_CALM_SECONDS:
            world.recorder.note("healed", {})
            await asyncio.sleep(LONG_CALM_SECONDS)  # so that liveness can be judged
    if not possible:  # a single broker, which has no copies
        await asyncio.sleep(plan.seconds)  # the run of an unharmed cluster


async def _strike(nemeses: list[Nemesis], random: Random, deadline: float) -> None:
    """Begin faults, let them last, and heal them in their order, but for those that heal last."""
    world = nemeses[0].world
    world.recorder.note("broken", {})
    for nemesis in nemeses:
        what = await nemesis.begin()
        world.recorder.note("nemesis", {"name": nemesis.name, "phase": "begin", "what": what})
        seconds = random.uniform(*nemesis.seconds)
        await asyncio.sleep(min(seconds, max(deadline - time.monotonic(), 0.5)))  # it lasts
    for nemesis in sorted(nemeses, key=lambda one: one.heals_last):
        await nemesis.heal()
        world.recorder.note("nemesis", {"name": nemesis.name, "phase": "heal", "what": ""})
    await cut_damage(world)
