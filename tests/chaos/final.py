"""The final phase: everything heals, and everything that was promised is looked for.

Each queue is read from each replica, the logs are compared byte by byte, and the projections of one
replica are deleted and rebuilt. What is found goes into the history; the checkers judge it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from chaos.checkers.groups import LIVE_WITHIN_SECONDS
from chaos.client import Client, Request, World
from chaos.cluster import Party
from chaos.workloads import consuming, deciding, delivering, sdk, sending, topics
from chaos.workloads.sending import read_pull
from support.waiting import until

TOPICS: Final[Mapping[str, int]] = {
    sending.TOPIC: sending.QUEUE_COUNT,
    delivering.TOPIC: delivering.QUEUE_COUNT,
    deciding.DELAYED_TOPIC: deciding.QUEUE_COUNT,
    deciding.PAID_TOPIC: deciding.QUEUE_COUNT,
    sdk.TOPIC: sdk.QUEUE_COUNT,
}
"""The topics that nobody deletes, and how many queues each has."""
BLOCK_SIZE: Final = 64 * 1024
CATCH_UP_SECONDS: Final = 40.0
READ_SECONDS: Final = 30.0


async def recover(world: World) -> None:
    """Heal everything, start what does not run, and wait until each group is alive again."""
    cluster = world.cluster
    cluster.network.heal()
    for party in cluster.parties.values():
        party.controls.heal()
        if party.is_paused:
            cluster.resume(party)
        if not party.is_running:
            cluster.run(party)
    for party in cluster.parties.values():
        with suppress(TimeoutError):
            await cluster.until_listening(party)
    world.recorder.note("healed", {})
    healed = world.recorder.now()
    with suppress(TimeoutError):  # the checker of liveness judges it
        await until(lambda: _is_live(world, healed), within_seconds=LIVE_WITHIN_SECONDS + 1.0)


def _is_live(world: World, since: float) -> bool:
    return all(
        world.last_ok.get((op, broker), 0.0) > since
        for broker in world.cluster.shape.brokers
        for op in ("send", "pull")
    )


async def look(
    world: World, left_open: Mapping[str, Mapping[str, str]], names: Mapping[str, list[str]]
) -> None:
    """Ask every question of the final phase.

    Args:
        world: The run, whose clients have ended.
        left_open: For each group, its transactions by message.
        names: For each group, the topics that came and went.
    """
    world.recorder.note("final", {})
    async with asyncio.TaskGroup() as tasks:
        for broker in world.cluster.shape.brokers:
            tasks.create_task(_look_at(world, broker, left_open[broker], names[broker]))


async def _look_at(
    world: World, broker: str, transactions: Mapping[str, str], names: list[str]
) -> None:
    client = Client(world, f"final-{broker}")
    try:
        await _drain(client, broker)
        for message, transaction in transactions.items():
            await _surely(lambda m=message, t=transaction: deciding.ask(client, broker, m, t))
        for name in names:
            await _surely(lambda n=name: topics.exists(client, broker, n))
        for queue_id in range(sending.QUEUE_COUNT):
            await _surely(lambda q=queue_id: consuming.committed(client, broker, q))
        offsets = await _caught_up(world, broker)
        for party in offsets:
            await read_queues(client, party, {**TOPICS, **dict.fromkeys(names, 1)})
        await _compare_logs(world, broker, offsets)
        if offsets:
            await _rebuild(client, world.random.choice(list(offsets)))
    finally:
        await client.close()


async def _surely(ask: Any, within_seconds: float = READ_SECONDS) -> Any:  # noqa: ANN401
    """Repeat a question until it is answered."""
    deadline = time.monotonic() + within_seconds
    while True:
        answer = await ask()
        if answer.is_ok or time.monotonic() > deadline:
            return answer


async def _drain(client: Client, broker: str) -> None:
    """Receive everything that waits, until there has been nothing for longer than a lease."""
    quiet_since = time.monotonic()
    deadline = quiet_since + 3 * READ_SECONDS
    while time.monotonic() < min(quiet_since + 2 * delivering.INVISIBLE_SECONDS, deadline):
        answer = await delivering.carry_some(client, broker)
        if not answer.is_ok or answer.told["deliveries"]:
            quiet_since = time.monotonic()
    dead = await _dead_letters(client, broker)
    group = f"{delivering.GROUP}@{broker}"
    asked = {"group": group, "broker": broker, "topic": delivering.TOPIC}
    client.world.recorder.record("invoke", client.name, "drain", asked)
    client.world.recorder.record("ok", client.name, "drain", {"pending": [], "dead": dead})


async def _dead_letters(client: Client, broker: str) -> list[str]:
    def read(told: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        letters = told.get("dead_letters", told.get("messages", []))
        return {"dead": [sending.text_of(one.get("message", one)) for one in letters]}

    request = Request(
        broker,
        "GET",
        f"/v1/groups/{delivering.GROUP}/dead-letters",
        meanings={"topic-not-found": {"dead": []}, "group-not-found": {"dead": []}},
    )
    asked = {"group": f"{delivering.GROUP}@{broker}"}
    answer = await _surely(lambda: client.do("dead-letters", asked, request, read))
    dead: list[str] = answer.told.get("dead", [])
    return dead


async def _caught_up(world: World, broker: str) -> dict[Party, tuple[int, int]]:
    """Wait until all replicas have confirmed the master's end; return each one's range."""
    deadline = time.monotonic() + CATCH_UP_SECONDS
    goal = -1
    found: dict[Party, tuple[int, int]] = {}
    while time.monotonic() < deadline:
        for party in world.cluster.replicas(broker):
            status = await world.cluster.status(party)
            if status is not None:
                found[party] = int(status["min_offset"]), int(status["confirmed"])
                if status["role"] == "master" and goal < 0:
                    goal = int(status["confirmed"])
        is_complete = goal >= 0 and len(found) == world.cluster.shape.replicas
        if is_complete and all(end >= goal for _, end in found.values()):
            return found
        await asyncio.sleep(0.2)  # other processes have no event to wait for
    for party in world.cluster.replicas(broker):
        status = await world.cluster.status(party)
        value = {"broker": broker, "replica": party.replica, "status": status}
        world.recorder.note("behind", value)
    return {party: span for party, span in found.items() if span[1] >= goal >= 0}


async def read_queues(client: Client, party: Party, counts: Mapping[str, int]) -> None:
    """Read every queue of some topics at one replica, and record each as a whole."""
    for topic, queue_count in counts.items():
        for queue_id in range(queue_count):
            asked = {"queue": [party.broker, topic, queue_id], "replica": party.replica}
            client.world.recorder.record("invoke", client.name, "queue", asked)
            told = await read_queue(client, party, topic, queue_id)
            kind = "info" if told is None else "ok"
            client.world.recorder.record(kind, client.name, "queue", told or {})  # type: ignore[arg-type]


async def read_queue(
    client: Client, party: Party, topic: str, queue_id: int
) -> dict[str, Any] | None:
    """Return the messages of a queue at a replica, from the first to the last; None: no answer."""
    cluster = client.world.cluster
    messages: list[list[Any]] = []
    least: int | None = None
    offset = 0
    deadline = time.monotonic() + READ_SECONDS
    while time.monotonic() < deadline:
        target = f"/v1/topics/{topic}/queues/{queue_id}/messages?offset={offset}&count_max=500"
        answer = await cluster.ask(party, "GET", target, timeout=10.0)
        if answer is not None and answer.status == 404:
            return {"messages": [], "min": 0, "end": 0}
        if answer is None or answer.status != 200:
            await asyncio.sleep(0.2)  # it is starting, or does not know yet what is confirmed
            continue
        told = json.loads(answer.body)
        if least is None:
            least = offset = int(told["min_offset"])
        found = read_pull(told)
        messages += [one for one in found["messages"] if one[0] >= offset]
        if found["next"] <= offset:
            return {"messages": messages, "min": least, "end": int(told["max_offset"])}
        offset = found["next"]
    return None


async def _compare_logs(world: World, broker: str, spans: Mapping[Party, tuple[int, int]]) -> None:
    if not spans:
        return
    start = max(least for least, _ in spans.values())
    end = min(confirmed for _, confirmed in spans.values())
    for party, (least, confirmed) in spans.items():
        process = f"log-{party.name}"
        asked = {"broker": broker, "replica": party.replica, "from": start, "to": end}
        world.recorder.record("invoke", process, "log", asked)
        blocks = await asyncio.to_thread(digests, party, start, end)
        told = {"min": least, "confirmed": confirmed, "blocks": blocks}
        world.recorder.record("ok", process, "log", told)


def digests(party: Party, start: int, end: int) -> dict[str, str]:
    """Return digests of a log's blocks in a range, by log offset."""
    found: dict[str, str] = {}
    for path in sorted((party.directory / "commitlog").iterdir()):
        base, data = int(path.name), path.read_bytes()
        for block in range(base, base + len(data), BLOCK_SIZE):
            first, last = max(block, start), min(block + BLOCK_SIZE, base + len(data), end)
            if first < last:
                content = data[first - base : last - base]
                found[str(first)] = hashlib.blake2b(content, digest_size=8).hexdigest()
    return found


async def _rebuild(client: Client, party: Party) -> None:
    """Delete a replica's projections while it does not run, and compare its answers."""
    world = client.world
    asked = {"broker": party.broker, "replica": party.replica}
    world.recorder.record("invoke", client.name, "rebuild", asked)
    before = await _answers(client, party)
    await world.cluster.stop(party, signal.SIGTERM)
    for name in ("consumequeue", "index"):
        shutil.rmtree(party.directory / name, ignore_errors=True)
    world.cluster.run(party)
    with suppress(TimeoutError):
        await world.cluster.until_listening(party)
    await _caught_up(world, party.broker)
    after = await _answers(client, party)
    told = {"before": before, "after": after}
    world.recorder.record("ok", client.name, "rebuild", told)


async def _answers(client: Client, party: Party) -> dict[str, str]:
    answers: dict[str, str] = {}
    for topic, queue_count in TOPICS.items():
        for queue_id in range(queue_count):
            told = await read_queue(client, party, topic, queue_id)
            text = json.dumps(told, sort_keys=True).encode()
            digest = hashlib.blake2b(text, digest_size=8).hexdigest()
            count = "no answer" if told is None else f"{len(told['messages'])} messages"
            answers[f"{topic}/{queue_id}"] = f"{count}, {digest}"
    return answers
