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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from chaos.checkers.groups import LIVE_WITHIN_SECONDS
from chaos.client import Client, Request, World
from chaos.cluster import SCRUB_SECONDS, SEGMENT_BYTES, Party
from chaos.operators import cut_damage
from chaos.workloads import consuming, deciding, delivering, sdk, sending, topics
from chaos.workloads.sending import read_pull
from support.waiting import until, until_told

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
REPAIR_SECONDS: Final = 3 * SCRUB_SECONDS
_REPAIRED: Final = "damaged records are repaired"  # the replica's own words


async def recover(world: World) -> None:
    """Heal everything, start what does not run, and wait until each group is alive again."""
    cluster = world.cluster
    cluster.network.heal()
    for party in cluster.parties.values():
        party.controls.heal()
    await asyncio.to_thread(cluster.arbiter.start)
    for party in cluster.parties.values():
        if party.is_paused:
            cluster.resume(party)
        cluster.run(party)
    for party in cluster.parties.values():
        with suppress(TimeoutError):
            await cluster.until_listening(party)
    await cut_damage(world)
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
        offsets = await caught_up(world, broker)
        await compare_flipped(world, broker)
        for party in offsets:
            await read_queues(client, party, {**TOPICS, **dict.fromkeys(names, 1)})
        await compare_logs(world, broker, offsets)
        if offsets:
            await rebuild(client, world.random.choice(list(offsets)))
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


async def caught_up(
    world: World, broker: str, *, within_seconds: float = CATCH_UP_SECONDS
) -> dict[Party, tuple[int, int]]:
    """Wait until all replicas have confirmed the master's end; return each one's range."""
    deadline = time.monotonic() + within_seconds
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


async def read_queues(
    client: Client,
    party: Party,
    counts: Mapping[str, int],
    *,
    within_seconds: float = READ_SECONDS,
) -> None:
    """Read every queue of some topics at one replica, and record each as a whole."""
    for topic, queue_count in counts.items():
        for queue_id in range(queue_count):
            asked = {"queue": [party.broker, topic, queue_id], "replica": party.replica}
            client.world.recorder.record("invoke", client.name, "queue", asked)
            told = await read_queue(client, party, topic, queue_id, within_seconds=within_seconds)
            kind = "info" if told is None else "ok"
            client.world.recorder.record(kind, client.name, "queue", told or {})  # type: ignore[arg-type]


async def read_queue(
    client: Client,
    party: Party,
    topic: str,
    queue_id: int,
    *,
    within_seconds: float = READ_SECONDS,
) -> dict[str, Any] | None:
    """Return the messages of a queue at a replica, from the first to the last; None: no answer."""
    cluster = client.world.cluster
    messages: list[list[Any]] = []
    least: int | None = None
    offset = 0
    deadline = time.monotonic() + within_seconds
    while time.monotonic() < deadline:
        target = f"/v1/topics/{topic}/queues/{queue_id}/messages?offset={offset}&count_max=500"
        answer = await cluster.ask(party, "GET", target, timeout=10.0)
        if answer is not None and answer.status == 307:  # a standby leaves "not found" to others
            master = await cluster.master(party.broker)
            answer = None
            if master is not None:
                answer = await cluster.ask(master, "GET", target, timeout=10.0)
            if answer is None or answer.status != 404:
                await asyncio.sleep(0.2)  # it does not know yet what is confirmed
                continue
        if answer is not None and answer.status == 404:
            return {"messages": [], "min": 0, "end": 0}
        if answer is None or answer.status != 200:
            await asyncio.sleep(0.2)  # it is starting, or does not know yet what is confirmed
            continue
        told = json.loads(answer.body)
        asked = offset
        if least is None:
            least = offset = int(told["min_offset"])
        found = read_pull(told)
        messages += [one for one in found["messages"] if one[0] >= offset]
        if found["next"] <= asked:
            return {"messages": messages, "min": least, "end": int(told["max_offset"])}
        offset = found["next"]
    return None


async def compare_flipped(
    world: World, broker: str, *, within_seconds: float = REPAIR_SECONDS
) -> None:
    """Wait until the flipped bits of a group are repaired; record which are, and by what."""
    flips = [
        note.value
        for note in world.recorder.history().noted("flipped")
        if note.value["broker"] == broker
    ]

    def are_repaired() -> bool:  # a replica tells of a repair only after the byte is right
        return all(_is_right(world, flip) and _is_told(world, flip) for flip in flips)

    with suppress(TimeoutError):  # the checker judges it
        await until_told(lambda: asyncio.to_thread(are_repaired), within_seconds=within_seconds)
    for flip in flips:
        found = {"is_equal": _is_right(world, flip), "is_told": _is_told(world, flip)}
        world.recorder.note("compared", {**flip, **found})


def _is_told(world: World, flip: Mapping[str, Any]) -> bool:
    """Tell whether it is known why a byte is right again."""
    party = world.cluster.parties[f"{flip['broker']}/{flip['replica']}"]
    # A start truncates a damaged end that was not flushed, and it is copied again.
    return (
        party.pid != flip["pid"]
        or not _byte_at(party, flip["offset"])  # retention has deleted it
        or any(start <= flip["offset"] < end for start, end in _repairs_of(world, party))
    )


def _is_right(world: World, flip: Mapping[str, Any]) -> bool:
    """Tell whether a byte is that of another replica; one that retention has deleted is."""
    found = {
        party.replica: _byte_at(party, flip["offset"])
        for party in world.cluster.replicas(flip["broker"])
    }
    own = found.pop(flip["replica"])
    return not own or own in found.values()


def _byte_at(party: Party, offset: int) -> bytes:
    base = offset - offset % SEGMENT_BYTES
    try:
        with (party.directory / "commitlog" / f"{base:020d}").open("rb") as file:
            file.seek(offset - base)
            return file.read(1)
    except FileNotFoundError:
        return b""


def _repairs_of(world: World, party: Party) -> Iterator[tuple[int, int]]:
    """Yield the parts of its log that a replica says it has repaired."""
    for line in world.cluster.log_of(party).read_text().splitlines():
        if _REPAIRED in line:
            told = json.loads(line)
            yield int(told["log_offset"]), int(told["log_offset"]) + int(told["size"])


async def compare_logs(world: World, broker: str, spans: Mapping[Party, tuple[int, int]]) -> None:
    """Record digests of what all replicas have confirmed."""
    if not spans:
        return
    end = min(confirmed for _, confirmed in spans.values())
    blocks = {party: await asyncio.to_thread(digests, party, 0, end) for party in spans}
    statuses = {party: await world.cluster.status(party) for party in spans}
    least = {  # retention may have deleted a segment meanwhile
        party: spans[party][0] if status is None else int(status["min_offset"])
        for party, status in statuses.items()
    }
    start = max(least.values())
    for party, (_, confirmed) in spans.items():
        asked = {"broker": broker, "replica": party.replica, "from": start, "to": end}
        kept = {offset: one for offset, one in blocks[party].items() if int(offset) >= start}
        told = {"min": least[party], "confirmed": confirmed, "blocks": kept}
        world.recorder.record_at(world.recorder.now(), f"log-{party.name}", "log", asked, told)


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


async def rebuild(client: Client, party: Party) -> None:
    """Delete a replica's projections while it does not run, and compare its answers."""
    world = client.world
    asked = {"broker": party.broker, "replica": party.replica}
    world.recorder.record("invoke", client.name, "rebuild", asked)
    found = await _answers(client, party)
    await world.cluster.stop(party, signal.SIGTERM)
    for name in ("consumequeue", "index"):
        shutil.rmtree(party.directory / name, ignore_errors=True)
    world.cluster.run(party)
    with suppress(TimeoutError):
        await world.cluster.until_listening(party)
    await caught_up(world, party.broker)
    rebuilt = await _answers(client, party)
    before, after = _comparable(found, rebuilt), _comparable(rebuilt, rebuilt)
    told = {"before": before, "after": after}
    world.recorder.record("ok", client.name, "rebuild", told)


Answers = Mapping[str, dict[str, Any] | None]


async def _answers(client: Client, party: Party) -> Answers:
    """Return what each queue answers; None: nothing."""
    return {
        f"{topic}/{queue_id}": await read_queue(client, party, topic, queue_id)
        for topic, queue_count in TOPICS.items()
        for queue_id in range(queue_count)
    }


def _comparable(answers: Answers, later: Answers) -> dict[str, str]:
    """Return answers in short, without what retention had deleted later."""
    short: dict[str, str] = {}
    for name, told in answers.items():
        least = (later[name] or {}).get("min", 0)
        kept = [one for one in (told or {}).get("messages", []) if one[0] >= least]
        text = json.dumps([kept, (told or {}).get("end")]).encode()
        digest = hashlib.blake2b(text, digest_size=8).hexdigest()
        short[name] = "no answer" if told is None else f"{len(kept)} messages, {digest}"
    return short
