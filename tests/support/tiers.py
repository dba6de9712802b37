"""Tiers for tests: a store with small segments, its tier, and what can be read of both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from eruca.contract.errors import TransportError
from eruca.contract.hashing import tags_code
from eruca.contract.wire import PullStatus
from eruca.objects.object_stores import ObjectRepository
from eruca.objects.repositories import PathTakenError, Repository
from eruca_broker.core.state.events import TopicPut
from eruca_broker.processors.status import Status
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tiering.tiering import Tiering, TierSettings
from eruca_chassis.app import ServiceApp
from support.clocks import ManualClock
from support.stores import batch, delete_oldest_segments, small_settings

if TYPE_CHECKING:
    from eruca_broker.store.pulling.queue_read import QueueRead

STEPS_MAX = 50
SETTINGS = TierSettings("eruca", "broker-a", cache_bytes_max=1 << 20, chunk_size=4_096, renews=True)


def memory_tier() -> ObjectRepository:
    """Return an empty object store in memory."""
    return ObjectRepository.of_url("memory:///", "eruca/broker-a")


async def filled_store(directory: Path, clock: ManualClock, segments: int = 6) -> MessageStore:
    """Return a store whose queues lie across *segments* segments."""
    store = await MessageStore.open(directory, small_settings(), clock)
    await store.change(TopicPut("orders", 3, 3, "rw"))
    await store.change(TopicPut("rare", 1, 1, "rw"))
    await store.append(batch("rare", 0, [b"only one"]))
    await fill(store, clock, segments)
    return store


async def fill(store: MessageStore, clock: ManualClock, segments: int) -> None:
    """Append messages of several queues until the log has *segments* more segments."""
    count = store.segment_count + segments
    number = 0
    while store.segment_count < count:
        clock.advance(1.0)
        tag = ("red", "blue")[number % 2]
        bodies = [b"%d/%d " % (number, row) + bytes(300) for row in range(5)]
        await store.append(batch("orders", number % 2, bodies, tag=tag))
        number += 1
    await store.upkeep.flush()


async def opened_tier(
    store: MessageStore,
    clock: ManualClock,
    repository: Repository,
    *,
    is_master: bool = True,
    **settings: float,
) -> Tiering:
    """Return the tier of a store, which reads; *settings* are those of :class:`TierSettings`."""
    changed = replace(SETTINGS, **settings)  # type: ignore[arg-type]  # numbers, as they have
    tiering = Tiering(store, repository, changed, clock, is_master=is_master)
    await tiering.open()
    return tiering


async def brought_up(tiering: Tiering) -> None:
    """Step until nothing is due; a failure is raised."""
    for _ in range(STEPS_MAX):
        pause = await tiering.step()
        assert tiering.failure is None, tiering.failure
        if pause:
            return
    raise AssertionError("the tier is never up to date")


async def tiered(
    store: MessageStore, clock: ManualClock, repository: Repository, **settings: float
) -> Tiering:
    """Return the tier of a store that has only the last of its segments here."""
    tiering = await opened_tier(store, clock, repository, is_master=True, **settings)
    await brought_up(tiering)
    await delete_local(store, tiering)
    return tiering


def tiering_of(app: ServiceApp) -> Tiering:
    """Return the tier of a broker."""
    tiering = app.parts[Status].tiering
    assert tiering is not None
    return tiering


async def delete_local(store: MessageStore, tiering: Tiering, count: int = 99) -> None:
    """Delete up to *count* segments here that the tier has."""
    ends = store.retention.segment_ends()
    in_tier = sum(end <= tiering.tiered_to for end in ends)
    await delete_oldest_segments(store, min(count, in_tier))


async def pulled(
    store: MessageStore, topic: str, queue_id: int, begin: int = 0, tag: str | None = None
) -> list[bytes]:
    """Return all records of a queue from *begin* on, as pulls get them."""
    offset, found = begin, list[bytes]()
    codes = None if tag is None else frozenset({tags_code(tag)})
    while True:
        read: QueueRead = await store.cold.read(
            "reader",
            partial(
                store.queues.read,
                *(topic, queue_id, offset),
                count_max=7,
                bytes_max=3_000,
                tag_codes=codes,
            ),
        )
        if read.status not in (PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE):
            assert read.status is PullStatus.NO_NEW_MESSAGE, read.status
            return found
        found += [bytes(raw) for raw in read.raws()]
        offset = read.next_offset


class FaultyRepository:
    """A repository in memory whose steps can fail or be replaced.

    Attributes:
        objects: By path.
        fails: Fail each step from now on.
        dies_after: Writes that succeed before all others fail; None: all succeed.
        requests_left: Requests of any kind that succeed before all others fail; None: all do.
        is_read_only: Refuse each write.
        read_bytes: Bytes of parts of objects that were read.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.fails = False
        self.dies_after: int | None = None
        self.requests_left: int | None = None
        self.requests = 0
        self.is_read_only = False
        self.read_bytes = 0

    def _step(self, *, writes: bool = False) -> None:
        self.requests += 1
        if self.fails:
            raise TransportError("the object store is away", fix="wait")
        if self.requests_left is not None:
            if self.requests_left == 0:
                raise TransportError("killed", fix="start again")
            self.requests_left -= 1
        if self.is_read_only and writes:
            raise TransportError("the object store refuses writes", fix="correct its rights")
        if self.dies_after is not None and writes:
            if self.dies_after == 0:
                raise TransportError("killed", fix="start again")
            self.dies_after -= 1

    async def put(self, path: str, data: bytes) -> None:
        self._step(writes=True)
        self.objects[path] = data

    async def put_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        data = b"".join([part async for part in parts])
        self._step(writes=True)
        self.objects[path] = data

    async def create(self, path: str, data: bytes) -> None:
        self._step(writes=True)
        if self.objects.setdefault(path, data) != data:
            raise PathTakenError(path)

    async def get(self, path: str) -> bytes:
        self._step()
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

    async def get_range(self, path: str, begin: int, end: int) -> bytes:
        data = (await self.get(path))[begin:end]
        self.read_bytes += len(data)
        return data

    async def sizes(self, folder: str, *, after: str | None = None) -> dict[str, int]:
        self._step()
        return {
            path: len(data)
            for path, data in self.objects.items()
            if (not folder or path.startswith(f"{folder}/")) and (after is None or path > after)
        }

    async def delete(self, paths: list[str]) -> None:
        self._step(writes=True)
        for path in paths:
            self.objects.pop(path, None)


def _conforms(repository: FaultyRepository) -> Repository:
    return repository
