"""Replicas: RocketMQ opens each copy of a log that several masters have written.

A broker with three replicas is under traffic of every kind. Meanwhile masters are killed, one of
them with records that nobody else has; a replica is away for more than a segment; masters hand
over. Then all replicas stop, and RocketMQ opens the store of each one. It must find the same
messages in each, and nothing that was truncated.

RocketMQ's client looks a message up by its offset id at the broker that wrote it. Every replica is
master once, and RocketMQ opens its store at its address. So each store is asked for the offset ids
that its own replica has given out. The other messages are compared by queue, key and unique id.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx

from interop import data
from interop.bench import Bench
from interop.checks import Checks
from interop.delayed import Delayed, check_delayed, leave_delayed
from interop.eruca_client import ErucaClient
from interop.eruca_group import ErucaGroup
from interop.filling import fill, write_on
from interop.rocketmq import SIZES
from interop.side import GROUP, QUEUE_COUNT, Contents, ends_of
from interop.store_files import log_bytes
from interop.traffic import Traffic

_REPLICAS: Final = (1, 2, 3)
_TRAFFIC_MAX: Final = 60_000  # flights; the traffic ends long before
_MORE: Final = 400  # flights that RocketMQ adds to each store
_UNCONFIRMED: Final = "unconfirmed"  # a topic
_UNCONFIRMED_COUNT: Final = 3
_UNANSWERED_SECONDS: Final = 0.5  # for a send that cannot be confirmed; well within the lease
_CUT: Final = "the log's unconfirmed end is truncated"  # logged by a replica that does it


def replicas(bench: Bench) -> None:
    """Let replicas fail under traffic; RocketMQ opens the store of each."""
    place = bench.directory / "replicas"
    stores = {number: place / f"replica-{number}" for number in _REPLICAS}
    ports = {number: bench.free_port() for number in _REPLICAS}
    title = bench.title("Eruca writes with replicas, which fail and return")
    with bench.checks.section(title):
        with bench.eruca_group(stores, ports) as group:
            contents, left = _write(bench, group)
            _stop(bench.checks, group)
        for store in stores.values():
            bench.check_files(store, contents)
        _check_equal_logs(bench.checks, stores)
    for number, store in stores.items():
        _open(bench, number, store, ports[number], contents=contents, left=left)


def _write(bench: Bench, group: ErucaGroup) -> tuple[Contents, Delayed]:
    """Fill the stores, let replicas fail under traffic; return what all must have then."""
    checks, count = bench.checks, bench.message_count
    masters = [group.master()]
    with group.client() as client:
        filled = fill(checks, client, count, with_delay=False)
        client.create_topic(data.DECIDED, QUEUE_COUNT)
        client.create_topic(_UNCONFIRMED, 1)
    with Traffic(group.name_server, data.flights(count + _TRAFFIC_MAX)[count:]) as traffic:
        traffic.wait_for_more()
        masters.append(_kill(group, masters[-1], traffic))
        _let_one_be_away(group, masters[-1], traffic)
        masters.append(_kill(group, masters[-1], traffic))
        masters.append(_cut(checks, group, masters[-1], traffic))
        while untried := set(_REPLICAS) - set(masters):
            masters.append(min(untried))
            group.switch(masters[-1])
            traffic.wait_for_more()
        group.switch(_other(masters[-1]))
        traffic.wait_for_more()
    checks.equal("every replica was the master once", set(masters), set(_REPLICAS))
    with group.client() as client:
        contents = _read(checks, client, filled, traffic)
        left = leave_delayed(checks, client, recalls_levels=False)
        _hand_over(group)
    with group.client() as client:
        committed = client.group_offsets(GROUP, data.FLIGHTS)
    return replace(contents, committed=committed), left


def _kill(group: ErucaGroup, master: int, traffic: Traffic) -> int:
    """Kill the master, and start it again once there is another one; return that."""
    group.kill(master)
    return _return_of(group, master, traffic)


def _return_of(group: ErucaGroup, former: int, traffic: Traffic) -> int:
    """Start a former master again, once there is another one; return that when all are in sync."""
    group.master(other_than=former)
    traffic.wait_for_more()
    group.start(former)
    group.wait_in_sync(len(_REPLICAS))
    traffic.wait_for_more()
    return group.master()


def _let_one_be_away(group: ErucaGroup, master: int, traffic: Traffic) -> None:
    """Stop a replica until the log has grown by a segment, and let it catch up."""
    away, before = _other(master), group.end_of(master)
    group.stop(away)
    while group.end_of(master) < before + SIZES.segment:
        traffic.wait_for_more()
    group.start(away)
    group.wait_in_sync(len(_REPLICAS))


def _cut(checks: Checks, group: ErucaGroup, master: int, traffic: Traffic) -> int:
    """Kill a master that has records of its own; return its successor.

    The others are suspended. So they receive the next write, for which their requests wait, and no
    later one.
    """
    others = [number for number in _REPLICAS if number != master]
    for number in others:
        group.pause(number)
    for number in range(_UNCONFIRMED_COUNT):
        _send_unconfirmed(group.url(master), number)
    written = group.end_of(master)
    group.kill(master)
    for number in others:
        group.resume(number)
    successor = _return_of(group, master, traffic)
    checks.record(
        "a master that returns truncates what nobody else has",
        agrees=_CUT in group.log_of(master),
        detail=f"its log ended at {written}",
    )
    return successor


def _send_unconfirmed(url: str, number: int) -> None:
    """Send a message that no replica will acknowledge."""
    message = {"body": {"text": f"unconfirmed {number}"}}
    try:
        answer = httpx.post(
            f"{url}/v1/topics/{_UNCONFIRMED}/messages", json=message, timeout=_UNANSWERED_SECONDS
        )
    except httpx.ReadTimeout:
        return
    assert not answer.is_success, f"a message is confirmed without replicas: {answer.text}"


def _hand_over(group: ErucaGroup) -> None:
    """Hand over by the route, while delayed messages are pending."""
    master = group.master()
    answer = httpx.post(
        f"{group.url(master)}/v1/replication/switch", json={"to": _other(master)}, timeout=30
    )
    answer.raise_for_status()
    group.master(other_than=master)


def _read(checks: Checks, client: ErucaClient, filled: Contents, traffic: Traffic) -> Contents:
    """Read all topics, and check that they have what was acknowledged."""
    flights, decided = client.read_topic(data.FLIGHTS), client.read_topic(data.DECIDED)
    traffic.check_read(checks, client, flights, filled.of_topic(data.FLIGHTS))
    traffic.check_decided(checks, decided)
    unconfirmed = client.read_topic(_UNCONFIRMED)
    bodies = {message.body for message in unconfirmed}
    last = f"unconfirmed {_UNCONFIRMED_COUNT - 1}".encode()
    checks.record("nobody reads what was truncated", agrees=last not in bodies)
    others = [message for message in filled.messages if message.topic != data.FLIGHTS]
    messages = [*others, *flights, *decided, *unconfirmed]
    return Contents(messages, ends_of(messages))


def _stop(checks: Checks, group: ErucaGroup) -> None:
    """Stop the replicas one after the other, the master last."""
    group.wait_for_equal_ends()
    master = group.master()
    codes = [group.stop(n) for n in sorted(_REPLICAS, key=lambda number: number == master)]
    checks.equal("all replicas stop in order", codes, [0] * len(_REPLICAS))


def _check_equal_logs(checks: Checks, stores: Mapping[int, Path]) -> None:
    """Check that the logs are equal, byte for byte, as far as the shortest one goes."""
    logs = {number: log_bytes(store) for number, store in stores.items()}
    length = min(map(len, logs.values()))
    distinct = {log[:length] for log in logs.values()}
    checks.record(
        "logs: equal in all replicas, byte for byte",
        agrees=len(distinct) == 1,
        detail=f"{length} bytes",
    )


def _open(
    bench: Bench, number: int, store: Path, port: int, *, contents: Contents, left: Delayed
) -> None:
    """Let RocketMQ read a replica's store, and write on."""
    copy = Path(shutil.copytree(store, store.with_name(f"{store.name}-opened")))
    title = bench.title(f"RocketMQ opens the store of replica {number} and writes on")
    with bench.checks.section(title), bench.rocketmq(copy, port=port) as opened:
        bench.check_contents(opened, contents, store_host=bench.host_of(port))
        more = data.flights(bench.message_count + _TRAFFIC_MAX)[-_MORE:]
        write_on(bench.checks, opened.side, contents, more)
        check_delayed(bench.checks, opened.side, left)


def _other(number: int) -> int:
    return _REPLICAS[number % len(_REPLICAS)]
