"""Flights go on while a broker's master is killed, and while every broker is restarted.

Eight senders send one flight after another, and pause in between: otherwise they would take the
processors from the processes that start. Their topic is ordered, so a flight waits for the broker
of its aircraft. Each send is timed. At the end all flights are pulled back: those whose send
was acknowledged must be there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import eruca
from demo.dataset import Flight
from demo.journey import Progress, RowNumber, message_of
from eruca_deploy.cluster import LocalCluster

TOPIC: Final = "diversions"
REPLICAS: Final = 2
SENDERS: Final = 8
SENDS_PER_EVENT: Final = 300  # at least
CALM: Final = "nothing happens"
SEND_SECONDS: Final = 30.0  # a fail-over takes less

_PAUSE_SECONDS: Final = 0.05  # of a sender, between two flights
_LOOK_SECONDS: Final = 0.1
_STEP_SECONDS: Final = 60.0  # without progress for so long: a fault
_STALLED_SECONDS: Final = 5.0  # no message for so long: all have been pulled


class StalledError(Exception):
    """The cluster did not recover; the text says what was waited for."""


@dataclass(slots=True)
class Episode:
    """One event, and the sends while it lasted."""

    event: str
    epochs: str = ""  # of the broker's masters, before and after
    sends: int = 0
    failed: list[str] = field(default_factory=list)
    longest_seconds: float = 0.0


@dataclass(slots=True)
class Survival:
    """The episodes, and what came back."""

    episodes: list[Episode] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)  # rows
    received: Counter[int] = field(default_factory=Counter)

    @property
    def lost(self) -> set[int]:
        """Rows that were acknowledged, and did not come back."""
        return self.acknowledged - self.received.keys()

    @property
    def repeated(self) -> int:
        """Messages beyond the first of each row."""
        return self.received.total() - len(self.received)

    def faults(self) -> list[str]:
        """Return what a second copy should have prevented."""
        found = [
            f"{len(episode.failed)} sends failed ({episode.event}), such as: {episode.failed[0]}"
            for episode in self.episodes
            if episode.failed
        ]
        if self.lost:
            rows = ", ".join(map(str, sorted(self.lost)[:3]))
            found.append(f"{len(self.lost)} acknowledged flights are lost, such as row {rows}")
        return found


async def survive(
    client: eruca.AsyncClient, cluster: LocalCluster, flights: Iterable[Flight], progress: Progress
) -> Survival:
    """Kill the first broker's master in mid-stream, then restart every broker process in turn."""
    await client.admin.create_topic(TOPIC, queue_count=4, ordered=True)
    survival = Survival()
    async with client.producer(send_timeout_seconds=SEND_SECONDS) as producer:
        stream = _Stream(producer, flights, survival)
        async with stream.running():
            await _events(cluster, stream, progress)
    async with client.pull_consumer(topics=TOPIC) as consumer:
        while messages := await consumer.poll(wait_seconds=_STALLED_SECONDS):
            survival.received.update(message.json(RowNumber).row for message in messages)
    return survival


def event_count(brokers: int) -> int:
    """Return the number of episodes: a calm one, a kill, and a restart of each process."""
    return 2 + brokers * REPLICAS


async def _events(cluster: LocalCluster, stream: _Stream, progress: Progress) -> None:
    names = [service.name for service in cluster.plan.brokers]
    progress(1)
    broker, master = next(iter((await cluster.masters()).items()))
    async with stream.episode(f"{master}, a master, is killed with SIGKILL") as episode:
        before = await _epochs(cluster)
        await cluster.kill(master)
        await _until(lambda: _has_new_epoch(cluster, broker, before[broker]), "a new master")
        after = await _epochs(cluster)
        episode.epochs = f"{before[broker]} → {after[broker]}"
    await cluster.restart(master)
    await _until(lambda: _is_whole(cluster), "all replicas to be in sync")
    progress(2)
    for number, name in enumerate(names, 3):
        led = [broker for broker, process in (await cluster.masters()).items() if process == name]
        role = "a master" if led else "a standby"
        async with stream.episode(f"{name}, {role}, is restarted with SIGTERM") as episode:
            before = await _epochs(cluster)
            await cluster.stop_one(name)
            await cluster.restart(name)
            await _until(lambda: _is_whole(cluster), "all replicas to be in sync")
            after = await _epochs(cluster)
            episode.epochs = ", ".join(f"{before[broker]} → {after[broker]}" for broker in led)
        progress(number)


class _Stream:
    """Senders that share the flights, and the present episode."""

    def __init__(
        self, producer: eruca.AsyncProducer, flights: Iterable[Flight], survival: Survival
    ) -> None:
        self._is_over = False
        self._producer = producer
        self._flights = iter(flights)
        self._survival = survival

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send for the block."""
        self._survival.episodes.append(Episode(CALM))
        senders = [asyncio.create_task(self._send()) for _ in range(SENDERS)]
        try:
            await self._enough()
            yield
        finally:
            self._is_over = True
            await asyncio.gather(*senders)

    @asynccontextmanager
    async def episode(self, event: str) -> AsyncIterator[Episode]:
        """Count the sends that begin from now on as those of *event*; end after enough of them."""
        episode = Episode(event)
        self._survival.episodes.append(episode)
        yield episode
        await self._enough()

    async def _enough(self) -> None:
        """Wait until the present episode has enough sends."""
        episode = self._survival.episodes[-1]

        async def has_enough() -> bool:
            return episode.sends >= SENDS_PER_EVENT

        await _until(has_enough, f"{SENDS_PER_EVENT} sends while {episode.event}")

    async def _send(self) -> None:
        """Send one flight after another until the stream is over."""
        for flight in self._flights:
            if self._is_over:
                return
            episode = self._survival.episodes[-1]
            started_at = time.perf_counter()
            try:
                await self._producer.send(message_of(TOPIC, flight))
            except eruca.ErucaError as error:
                episode.failed.append(str(error))
            else:
                self._survival.acknowledged.add(flight.row)
            episode.sends += 1
            seconds = time.perf_counter() - started_at
            episode.longest_seconds = max(episode.longest_seconds, seconds)
            await asyncio.sleep(_PAUSE_SECONDS)


async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for *condition*.

    Raises:
        StalledError: It was not met in time.
    """
    until = time.monotonic() + _STEP_SECONDS
    while not await condition():
        if time.monotonic() > until:
            raise StalledError(f"{what}: not within {_STEP_SECONDS:.0f} s")
        await asyncio.sleep(_LOOK_SECONDS)


async def _epochs(cluster: LocalCluster) -> dict[str, int]:
    return {name: group.epoch for name, group in (await cluster.groups()).items()}


async def _has_new_epoch(cluster: LocalCluster, broker: str, before: int) -> bool:
    return (await _epochs(cluster))[broker] > before


async def _is_whole(cluster: LocalCluster) -> bool:
    """Tell whether every replica of every broker is in sync."""
    return all(len(group.in_sync) == REPLICAS for group in (await cluster.groups()).values())
