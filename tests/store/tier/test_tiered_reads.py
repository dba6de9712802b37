"""Reads behind the beginning of the log here: as before retention, from the tier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from eruca.contract.errors import UnavailableError
from eruca.contract.wire import PullStatus
from eruca.core.filters.sql92 import compile_sql92
from eruca.objects.folders import FolderRepository
from eruca.objects.object_stores import ObjectRepository
from eruca.objects.repositories import Repository
from eruca_broker.core.state.events import TopicDeleted, TopicPut
from eruca_broker.core.state.group_events import CommittedOffset, OffsetsCommitted
from eruca_broker.processors.groups.lags import GroupLags
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tier import cache
from eruca_broker.store.tier.blobs import head_of
from support.clocks import ManualClock
from support.stores import batch, small_settings, without_log_lines
from support.tiers import (
    FaultyRepository,
    brought_up,
    delete_local,
    fill,
    filled_store,
    memory_tier,
    opened_tier,
    pulled,
    tiered,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def segment_count() -> int:
    return 6


def _folder(directory: Path) -> Repository:
    return FolderRepository(directory / "tier")


def _local(directory: Path) -> Repository:
    (directory / "objects").mkdir()
    return ObjectRepository.of_url((directory / "objects").as_uri(), "eruca/broker-a")


PLACES = {"folder": _folder, "memory": lambda _: memory_tier(), "local": _local}


@pytest.mark.parametrize("place", PLACES)
async def test_pulls_get_the_same_bytes_after_the_segments_are_deleted_here(
    store: MessageStore, clock: ManualClock, tmp_path: Path, place: str
) -> None:
    queues = [("orders", 0), ("orders", 1), ("rare", 0)]
    before = {
        (queue, tag): await pulled(store, *queue, tag=tag)
        for queue in queues
        for tag in (None, "red")
    }
    tiering = await tiered(store, clock, PLACES[place](tmp_path))

    assert store.segment_count == 1
    assert store.queues.local_range("rare", 0) == (1, 1)
    assert store.queues.range("rare", 0) == (0, 1)
    after = {
        (queue, tag): await pulled(store, *queue, tag=tag)
        for queue in queues
        for tag in (None, "red")
    }
    assert after == before
    assert tiering.reader.read_count > 0
    await tiering.close()


async def test_times_of_messages_in_the_tier_are_found(
    store: MessageStore, clock: ManualClock
) -> None:
    def answers() -> list[Callable[[], int | None]]:
        queues = store.queues
        found: list[Callable[[], int | None]] = []
        for queue in (("orders", 0), ("orders", 1), ("rare", 0)):
            for ms in range(clock.now_ms() - 100_000, clock.now_ms() + 2_000, 500):
                for upper in (False, True):
                    found.append(partial(store.places.offset_by_time, *queue, ms, upper=upper))
            for offset in range(queues.range(*queue)[1]):
                found.append(partial(store.places.stored_at_ms, *queue, offset))
        return found

    before = [await store.cold.read("reader", ask) for ask in answers()]
    tiering = await tiered(store, clock, memory_tier())

    assert [await store.cold.read("reader", ask) for ask in answers()] == before
    await tiering.close()


async def test_a_filter_over_properties_reads_the_tier(
    store: MessageStore, clock: ManualClock
) -> None:
    condition = compile_sql92("TAGS = 'blue'")

    async def found() -> list[bytes]:
        offset, bodies = 0, list[bytes]()
        while True:
            ask = partial(
                store.queues.read,
                *("orders", 1, offset),
                count_max=6,
                bytes_max=1 << 20,
                sql92=condition,
            )
            read = await store.cold.read("reader", ask)
            if read.status is PullStatus.NO_NEW_MESSAGE:
                return bodies
            bodies += [bytes(record.body) for record in read.records()]
            offset = read.next_offset

    before = await found()
    tiering = await tiered(store, clock, memory_tier())

    assert await found() == before != []
    await tiering.close()


async def test_the_predecessor_of_a_topic_is_not_read_from_the_tier(
    store: MessageStore, clock: ManualClock
) -> None:
    tiering = await opened_tier(store, clock, memory_tier())
    await store.change(TopicDeleted("orders"))
    await store.change(TopicPut("orders", 3, 3, "rw"))
    await store.append(batch("orders", 0, [b"a new topic's"]))
    await fill(store, clock, 2)
    before = await pulled(store, "orders", 0)
    await brought_up(tiering)

    await delete_local(store, tiering)

    assert store.queues.range("orders", 0)[0] == 0 < store.queues.local_range("orders", 0)[0]
    assert await pulled(store, "orders", 0) == before
    await tiering.close()


async def test_a_small_cache_is_enough_for_everything(
    store: MessageStore, clock: ManualClock, tmp_path: Path
) -> None:
    before = await pulled(store, "orders", 0)
    tiering = await tiered(store, clock, memory_tier(), cache_bytes_max=40_000)

    assert await pulled(store, "orders", 0) == before
    cached = sum(f.stat().st_size for f in (tmp_path / "store/tier/cache").iterdir())
    assert cached <= 40_000
    await tiering.close()


async def test_a_tier_that_is_away_is_never_an_empty_queue(
    store: MessageStore, clock: ManualClock
) -> None:
    repository = FaultyRepository()
    tiering = await tiered(store, clock, repository)
    begin = store.queues.local_range("orders", 0)[0]
    repository.fails = True

    with pytest.raises(UnavailableError):
        await pulled(store, "orders", 0)
    assert await pulled(store, "orders", 0, begin), "messages here do not need it"

    repository.fails = False
    assert len(await pulled(store, "orders", 0)) == store.queues.range("orders", 0)[1]
    await tiering.close()


@pytest.mark.parametrize("kind", [".log", ".queues"])
async def test_a_damaged_object_is_refused_before_a_byte_of_it_is_served(
    store: MessageStore, clock: ManualClock, kind: str
) -> None:
    repository = FaultyRepository()
    tiering = await tiered(store, clock, repository)
    assert tiering.manifest is not None
    segment = tiering.manifest.segments[1]
    path = f"{store.state.log_id}/{segment.path if kind == '.log' else segment.side_path}"
    data = bytearray(repository.objects[path])
    data[len(data) // 2] ^= 1
    repository.objects[path] = bytes(data)

    with pytest.raises(UnavailableError, match="is damaged"):
        await pulled(store, "orders", 0)
    assert tiering.cache.damaged_count == 1
    await tiering.close()


async def test_a_missing_object_is_a_refusal(store: MessageStore, clock: ManualClock) -> None:
    repository = FaultyRepository()
    tiering = await tiered(store, clock, repository)
    assert tiering.manifest is not None
    del repository.objects[f"{store.state.log_id}/{tiering.manifest.segments[2].path}"]

    with pytest.raises(UnavailableError, match="lacks"):
        await pulled(store, "orders", 0)
    await tiering.close()


async def test_a_start_without_the_tier_reads_by_the_manifest_that_it_knew(
    tmp_path: Path, clock: ManualClock
) -> None:
    with without_log_lines():
        store = await filled_store(tmp_path / "store", clock)
        repository = FaultyRepository()
        tiering = await opened_tier(store, clock, repository)
        await brought_up(tiering)
        before = await pulled(store, "orders", 0)
        await delete_local(store, tiering)
        await tiering.close()
        await store.close()
        repository.fails = True

        store = await MessageStore.open(tmp_path / "store", small_settings(), clock)
        tiering = await opened_tier(store, clock, repository)
        await tiering.step()

        assert tiering.failure is not None
        assert store.queues.range("orders", 0)[0] == 0
        assert tiering.tiered_to == 0, "nothing is deleted by a manifest that may be replaced"
        repository.fails = False
        assert await pulled(store, "orders", 0) == before
        await tiering.close()
        await store.close()


async def test_without_any_manifest_a_shortened_queue_is_refused_and_not_skipped(
    store: MessageStore, clock: ManualClock
) -> None:
    repository = FaultyRepository()
    tiering = await tiered(store, clock, repository)
    await tiering.close()
    for file in (store.directory / "tier").glob("*.json"):
        file.unlink()
    repository.fails = True

    tiering = await opened_tier(store, clock, repository)

    with pytest.raises(UnavailableError, match="not known yet"):
        store.queues.range("orders", 0)
    await store.append(batch("orders", 0, [b"sends go on"]))
    begin, end = store.queues.local_range("orders", 0)
    assert len(await pulled(store, "orders", 0, begin)) == end - begin, "they do not need the tier"
    for elsewhere in (begin - 1, end + 1):
        with pytest.raises(UnavailableError, match="not known yet"):
            await pulled(store, "orders", 0, elsewhere)
    await tiering.close()


async def test_retention_does_not_wait_for_what_only_the_tier_has(
    store: MessageStore, clock: ManualClock
) -> None:
    repository = FaultyRepository()
    tiering = await tiered(store, clock, repository)
    await store.change(OffsetsCommitted("behind", [CommittedOffset("orders", 0, 3)]))
    await store.cold.read("reader", partial(store.places.log_offset_of, "orders", 0, 3))
    repository.fails, before = True, repository.requests

    unread = await GroupLags(store).unread_before(store.log_max_offset)

    assert unread == {}, "it loses nothing here"
    assert repository.requests == before
    await tiering.close()


class _HungRepository(FaultyRepository):
    """A repository whose objects cannot be read at once any more, if told so."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False
        self.has_begun = asyncio.Event()

    async def get_range(self, path: str, begin: int, end: int) -> bytes:
        if self.hangs:
            self.has_begun.set()
            await asyncio.Event().wait()
        return await super().get_range(path, begin, end)


async def test_a_role_that_ends_refuses_reads_that_wait_for_the_tier(
    store: MessageStore, clock: ManualClock
) -> None:
    before = await pulled(store, "orders", 0)
    repository = _HungRepository()
    tiering = await tiered(store, clock, repository)
    await tiering.close()
    tiering = await opened_tier(store, clock, repository)
    repository.hangs = True
    waiting = asyncio.create_task(pulled(store, "orders", 0))
    await repository.has_begun.wait()

    await tiering.close()

    with pytest.raises(UnavailableError, match="role has changed"):
        await waiting
    repository.hangs = False
    tiering = await opened_tier(store, clock, repository)
    assert await pulled(store, "orders", 0) == before
    await tiering.close()


async def test_a_read_of_a_slow_tier_ends_and_its_repetition_goes_on(
    store: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = FaultyRepository()
    tiering = await opened_tier(store, clock, repository)
    await brought_up(tiering)
    await tiering.close()
    tiering = await opened_tier(store, clock, repository)
    await tiering.step()
    manifest = tiering.manifest
    assert manifest is not None
    blobs = [head_of(segment) for segment in manifest.segments[-3:]]
    assert not any(tiering.cache.find(blob) for blob in blobs[:2])
    monkeypatch.setattr(cache, "READ_SECONDS", 0.0)

    with pytest.raises(UnavailableError, match="slow"):
        await tiering.cache.fetch(blobs)

    assert [tiering.cache.find(blob) is not None for blob in blobs[:2]] == [True, False]
    await tiering.cache.fetch(blobs)
    assert all(tiering.cache.find(blob) for blob in blobs)
    await tiering.close()
