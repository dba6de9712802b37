"""Idle groups: the CPU and memory of a broker with many of them.

Each group has a member that holds every queue of a topic and sends heartbeats with their names. It
keeps a pull of all queues and a request for the member list held at the broker.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from bench.batches import TOPIC
from bench.http_rows import create_topic
from bench.machine import cpu_seconds, private_memory
from bench.report import Report
from bench.servers import Server, broker
from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.transport import JSON_HEADER
from eruca.contract.groups import (
    GrantedLock,
    Heartbeat,
    LockToken,
    OffsetCommit,
    OffsetCommits,
    Subscription,
    WantedQueue,
)
from eruca.contract.limits import SESSION_SECONDS_DEFAULT

_GROUPS: Final = 1_000
_GROUP_QUEUES: Final = 100
_AT_ONCE: Final = 20  # groups that join at once
_IDLE_SECONDS: Final = SESSION_SECONDS_DEFAULT  # three heartbeats; each held request is renewed
_HELD_SECONDS: Final = 15.0
_MIB: Final = 1024 * 1024


async def run(report: Report) -> None:
    """Measure every row."""
    with broker() as server:
        create_topic(server, TOPIC, _GROUP_QUEUES)
        await _idle(report, server)


class _IdleMember:
    """The requests of a group's only member to a broker while nothing happens."""

    def __init__(self, transport: Http1Transport, url: str, number: int) -> None:
        self._transport = transport
        self._url = url
        self._api = GroupApi(
            transport, f"bench-{number}", client_id="bench", incarnation="1", timeout=60
        )
        self._heartbeat = Heartbeat(
            incarnation="1", subscriptions=[Subscription(topic=TOPIC)], start="latest"
        )
        self._pull = b""

    async def join(self) -> None:
        """Join, lock every queue, and commit the current offsets."""
        await self._api.beat(self._url, self._heartbeat, timeout=60)
        wanted = [WantedQueue(topic=TOPIC, queue_id=number) for number in range(_GROUP_QUEUES)]
        locks = (await self._api.lock(self._url, wanted, wait=0)).locks
        assert len(locks) == _GROUP_QUEUES
        tokens = [
            LockToken(topic=TOPIC, queue_id=lock.queue_id, token=lock.token) for lock in locks
        ]
        self._heartbeat = self._heartbeat.model_copy(update={"locks": tokens})
        await self._api.commit(self._url, _commits(locks))
        queues = [
            {"topic": TOPIC, "queue_id": lock.queue_id, "offset": lock.next_offset}
            for lock in locks
        ]
        self._pull = msgspec.json.encode({"queues": queues, "wait_seconds": _HELD_SECONDS})

    async def idle(self) -> None:
        """Send heartbeats, and keep a pull and a request for the member list held."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            tasks.create_task(self._pull_on())
            tasks.create_task(self._watch())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(SESSION_SECONDS_DEFAULT / 3)
            await self._api.beat(self._url, self._heartbeat, timeout=60)

    async def _pull_on(self) -> None:
        while True:
            answer = await self._transport.request(
                "POST",
                self._url,
                "/v1/pull",
                headers=(JSON_HEADER,),
                body=(self._pull,),
                timeout=60,
            )
            assert answer.status == 200, answer.body

    async def _watch(self) -> None:
        etag: str | None = None
        while True:
            changed = await self._api.members(self._url, etag=etag, wait=_HELD_SECONDS)
            etag = etag if changed is None else changed[1]


def _commits(locks: Sequence[GrantedLock]) -> OffsetCommits:
    return OffsetCommits(
        client_id="bench",
        incarnation="1",
        offsets=[
            OffsetCommit(
                topic=TOPIC, queue_id=lock.queue_id, offset=lock.next_offset, token=lock.token
            )
            for lock in locks
        ],
    )


async def _idle(report: Report, server: Server) -> None:
    """Measure many groups of one member each, which holds every queue, with nothing to read."""
    before = private_memory(server.process_id)
    transport = Http1Transport()
    members = [_IdleMember(transport, server.url, number) for number in range(_GROUPS)]
    began = time.perf_counter()
    for first in range(0, _GROUPS, _AT_ONCE):
        await asyncio.gather(*(member.join() for member in members[first : first + _AT_ONCE]))
    joined_seconds = time.perf_counter() - began
    joined = private_memory(server.process_id)
    tasks = []
    for member in members:  # spread over the time between two heartbeats, as in reality
        tasks.append(asyncio.create_task(member.idle()))
        await asyncio.sleep(SESSION_SECONDS_DEFAULT / 3 / _GROUPS)
    gc.collect()
    cpu_before, began = cpu_seconds(server.process_id), time.perf_counter()
    await asyncio.sleep(_IDLE_SECONDS)
    used = (cpu_seconds(server.process_id) - cpu_before) / (time.perf_counter() - began)
    idle = private_memory(server.process_id)
    for task in tasks:
        assert not task.done(), task
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await transport.close()
    report.figure(
        f"{_GROUPS:,} groups x {_GROUP_QUEUES} queues, idle",
        f"{used:.0%} of a core; {(idle - before) / _MIB:.0f} MiB, "
        f"of which state {(joined - before) / _MIB:.0f}; joined in {joined_seconds:.1f} s",
    )
