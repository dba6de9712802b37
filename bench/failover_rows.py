"""Fail-over and hand-over: the time for which the senders of a broker group wait; and its memory.

One program awaits one send after another, through the SDK, while replicas die, stop and switch.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import eruca
from bench.machine import private_memory
from bench.report import Report
from bench.servers import Replicas, replicas

KILLS: Final = 10
_SWITCHES: Final = 5  # and as many stops by SIGTERM
_SEND_SECONDS: Final = 60.0
_GROUP_SECONDS: Final = 60.0  # for a group to have two copies again
_ASK_SECONDS: Final = 0.02
_TOPIC: Final = "bench"
_MIB: Final = 1024 * 1024
_FILLING_BATCHES: Final = 512  # of about a mebibyte


def run(report: Report, _seconds: float, *, kills: int) -> None:
    """Measure every row."""
    with replicas() as group:
        asyncio.run(_measured(report, group, kills))


class _Sender:
    """Sends without end, and remembers the longest wait since :meth:`begin`."""

    def __init__(self, producer: eruca.AsyncProducer) -> None:
        self._producer = producer
        self._begun_at = 0.0
        self._longest = 0.0
        self._last_at = 0.0  # the beginning of the last send that succeeded
        self._sent = asyncio.Event()
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._sent.set())

    def begin(self) -> None:
        """Begin a measurement."""
        self._longest, self._begun_at = 0.0, time.perf_counter()

    async def waited(self) -> float:
        """Return the longest wait, once a send that began after :meth:`begin` has succeeded."""
        while self._last_at < self._begun_at:
            self._sent.clear()
            if self._task.done():
                self._task.result()  # raises
            await self._sent.wait()
        return self._longest

    async def stop(self) -> None:
        """End the send under way."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            began_at = time.perf_counter()
            await self._producer.send(eruca.Message(_TOPIC, b"x" * 100))
            self._longest = max(self._longest, time.perf_counter() - began_at)
            self._last_at = began_at
            self._sent.set()


async def _measured(report: Report, group: Replicas, kills: int) -> None:
    async with eruca.AsyncClient(group.name_server) as client:
        await _copied(group)
        await client.admin.create_topic(_TOPIC, queue_count=1)
        options = {"send_timeout_seconds": _SEND_SECONDS, "idempotent": True}
        async with client.producer(**options) as producer:  # type: ignore[arg-type]  # of two types
            await _memory(report, group, producer)
            sender = _Sender(producer)
            failovers = [await _waited(group, sender, group.kill) for _ in range(kills)]
            stops = [await _waited(group, sender, group.stop) for _ in range(_SWITCHES)]
            switches = [await _waited(group, sender, _switch(group)) for _ in range(_SWITCHES)]
            await sender.stop()
    report.figure(f"longest wait of a send, {kills} kills of the master", _shown(failovers))
    report.figure(f"… {_SWITCHES} stops by SIGTERM", _shown(stops))
    report.figure(f"… {_SWITCHES} switches", _shown(switches))
    report.ratio("fail-over", _percentile(failovers, 0.99))
    report.ratio("hand-over", max(*stops, *switches))


async def _memory(report: Report, group: Replicas, producer: eruca.AsyncProducer) -> None:
    """Send batches; a replica should need no more private memory than its master."""
    batch = [eruca.Message(_TOPIC, b"x" * 1024)] * 1000
    for _ in range(_FILLING_BATCHES):
        await producer.send_many(batch)
    master = await _copied(group)
    of_master, of_replica = (
        private_memory(group.process_id(replica_id)) / _MIB for replica_id in (master, 3 - master)
    )
    report.figure(
        "private memory of a master and its replica, after 512 MiB",
        f"{of_master:.0f} and {of_replica:.0f} MiB",
    )
    report.ratio("copies-memory", of_replica / of_master)


async def _waited(group: Replicas, sender: _Sender, end: Callable[[int], None]) -> float:
    """End the master's term by *end*; return the longest wait of a send."""
    master = await _copied(group)
    sender.begin()
    await asyncio.to_thread(end, master)
    waited = await sender.waited()
    if end != group.kill:  # its successor begins after it was appointed
        await asyncio.sleep(1.0)
        waited = await sender.waited()
    try:
        await asyncio.to_thread(_status, group, master)
    except OSError:
        await asyncio.to_thread(group.start, master)
    return waited


def _switch(group: Replicas) -> Callable[[int], None]:
    def switch(master: int) -> None:
        request = urllib.request.Request(
            f"{group.url(master)}/v1/replication/switch",
            b"{}",
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_SEND_SECONDS):
            pass

    return switch


async def _copied(group: Replicas) -> int:
    """Return the id of the master, once both replicas are in sync."""
    until = time.monotonic() + _GROUP_SECONDS
    while time.monotonic() < until:
        for replica_id in (1, 2):
            try:
                status = await asyncio.to_thread(_status, group, replica_id)
            except OSError:
                continue
            if status["role"] == "master" and len(status["in_sync"]) == 2:
                return replica_id
        await asyncio.sleep(_ASK_SECONDS)
    raise TimeoutError("the group has not two copies")


def _status(group: Replicas, replica_id: int) -> Any:  # noqa: ANN401 - whatever it is
    url = f"{group.url(replica_id)}/v1/replication/status"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


def _percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def _shown(values: list[float]) -> str:
    return f"{median(values):.2f} s at the median, {max(values):.2f} s at most"
