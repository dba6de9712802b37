"""Members that join, leave and die: the time until every queue is read again."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import eruca
from bench.batches import TOPIC
from bench.http_rows import create_topic
from bench.report import Report
from bench.servers import MALLOC, Server, broker, name_server
from eruca.contract.limits import SESSION_SECONDS_MIN

_QUEUES: Final = 8
_MEMBERS: Final = 5
_ROUNDS: Final = 5
_DEATHS: Final = 3


async def run(report: Report) -> None:
    """Measure every row."""
    with name_server() as namesrv, broker(namesrv_urls=namesrv.url) as server:
        create_topic(server, TOPIC, _QUEUES)
        await _changes(report, namesrv)
        await _deaths(report, namesrv)


class _Member:
    """A push consumer that signals each change of its queues."""

    def __init__(self, client: eruca.AsyncClient, group: str, changed: asyncio.Event) -> None:
        self.handled: set[eruca.MessageQueue] = set()
        self.consumer = client.push_consumer(
            group,
            start="latest",
            membership=eruca.Membership(session_seconds=SESSION_SECONDS_MIN),
            listeners=eruca.Listeners(
                on_assigned=lambda _: changed.set(), on_revoked=lambda _: changed.set()
            ),
        )
        self.consumer.subscribe(TOPIC, handler=self._handle)
        self._changed = changed

    @property
    def queues(self) -> list[eruca.MessageQueue]:
        """The queues of the topic that it reads."""
        return [queue for queue in self.consumer.assignment if queue.topic == TOPIC]

    async def _handle(self, message: eruca.ReceivedMessage) -> None:
        self.handled.add(message.queue)
        self._changed.set()


async def _until_shared(members: Sequence[_Member], changed: asyncio.Event) -> None:
    """Wait until all queues are held, as evenly as possible."""
    while True:
        changed.clear()
        sizes = sorted(len(member.queues) for member in members)
        if sum(sizes) == _QUEUES and sizes[-1] - sizes[0] <= 1:
            return
        await changed.wait()


async def _changes(report: Report, namesrv: Server) -> None:
    """Let members join one by one, then leave; time each until all queues are shared again."""
    joins: dict[int, list[float]] = {number: [] for number in range(1, _MEMBERS + 1)}
    leaves: list[float] = []
    for number in range(_ROUNDS):
        changed = asyncio.Event()
        members: list[_Member] = []
        async with AsyncExitStack() as stack:
            for _ in range(_MEMBERS):
                client = await stack.enter_async_context(eruca.AsyncClient(namesrv.url))
                await client.admin.queues(TOPIC)  # exclude the connection and the route
                member = _Member(client, f"bench-{number}", changed)
                began = time.perf_counter()
                await member.consumer.start()
                members.append(member)
                await _until_shared(members, changed)
                joins[len(members)].append(time.perf_counter() - began)
            while len(members) > 1:
                began = time.perf_counter()
                await members.pop(0).consumer.stop()
                await _until_shared(members, changed)
                leaves.append(time.perf_counter() - began)
            await members[0].consumer.stop()
    later = [seconds for number, every in joins.items() if number > 1 for seconds in every]
    for name, times in (("first member", joins[1]), ("further member", later), ("leaving", leaves)):
        report.figure(
            f"until {_QUEUES} queues are shared, {name}",
            f"p50 {statistics.median(times) * 1e3:.0f} ms, max {max(times) * 1e3:.0f} ms",
        )


async def _deaths(report: Report, namesrv: Server) -> None:
    """Kill one of two members; time until each of its queues has had a message handled."""
    times: list[float] = []
    async with eruca.AsyncClient(namesrv.url) as client:
        for number in range(_DEATHS):
            changed = asyncio.Event()
            group = f"bench-death-{number}"
            survivor = _Member(client, group, changed)
            async with survivor.consumer, _killable(namesrv, group) as other:
                while len(survivor.queues) != _QUEUES // 2:
                    changed.clear()
                    await changed.wait()
                everything = set(await client.admin.queues(TOPIC))
                missing = everything - set(survivor.queues)
                other.kill()
                began = time.perf_counter()
                async with client.producer() as producer:
                    for queue in missing:
                        await producer.send(eruca.Message(TOPIC, b"x"), queue=queue)
                while not survivor.handled >= missing:
                    changed.clear()
                    await changed.wait()
                times.append(time.perf_counter() - began)
    report.figure(
        f"from a member's death to its queues being read, session {SESSION_SECONDS_MIN:g} s",
        f"{min(times):.2f} to {max(times):.2f} s",
    )


@asynccontextmanager
async def _killable(namesrv: Server, group: str) -> AsyncIterator[Process]:
    """Run a member as a process."""
    process = await create_subprocess_exec(
        *(sys.executable, "-m", "bench.consume_client", "member", namesrv.url, group, "0"),
        stdout=PIPE,
        env=os.environ | MALLOC,
        cwd=Path(__file__).parent.parent,
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
