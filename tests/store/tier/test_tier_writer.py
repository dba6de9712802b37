"""The tier's writer: killed anywhere, overtaken, truncated, and its own retention."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from eruca_broker.core.tier.manifests import MANIFESTS, Manifest, decoded, number_of
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tiering.tiering import Tiering
from support.clocks import ManualClock
from support.stores import (
    batch,
    delete_oldest_segments,
    small_settings,
    without_log_lines,
)
from support.tiers import (
    SETTINGS,
    STEPS_MAX,
    FaultyRepository,
    brought_up,
    delete_local,
    fill,
    filled_store,
    pulled,
)

pytestmark = pytest.mark.anyio


def tier_of(
    store: MessageStore,
    repository: FaultyRepository,
    clock: ManualClock,
    *,
    keep_hours: float = 0,
    is_master: bool = True,
) -> Tiering:
    settings = replace(SETTINGS, keep_hours=keep_hours)
    return Tiering(store, repository, settings, clock, is_master=is_master)


def latest(repository: FaultyRepository, log_id: str) -> Manifest | None:
    """Return the manifest that a reader would find, after checking what it names."""
    numbers = [number_of(path.partition("/")[2]) or 0 for path in repository.objects]
    if not (number := max(numbers, default=0)):
        return None
    data = repository.objects[f"{log_id}/{MANIFESTS}/{number:012d}.json"]
    manifest = decoded(data, number=number, log_id=log_id)
    for segment in manifest.segments:
        assert len(repository.objects[f"{log_id}/{segment.path}"]) == segment.end - segment.base
        assert len(repository.objects[f"{log_id}/{segment.side_path}"]) == segment.side_size
    return manifest


async def test_a_kill_at_any_write_leaves_a_tier_that_the_next_start_goes_on_with(
    store: MessageStore, clock: ManualClock
) -> None:
    log_id, ends = store.state.log_id, store.retention.segment_ends()
    before = await pulled(store, "orders", 0)
    for writes in range(14):
        repository = FaultyRepository()
        killed = tier_of(store, repository, clock)
        await killed.open()
        repository.dies_after = writes
        for _ in range(STEPS_MAX):
            if await killed.step() and killed.failure:
                break
        await killed.close()
        named = latest(repository, log_id)
        assert named is None or [one.end for one in named.segments] == ends[: len(named.segments)]

        repository.dies_after = None
        tiering = tier_of(store, repository, clock)
        await tiering.open()
        await brought_up(tiering)
        found = latest(repository, log_id)
        assert found is not None
        assert [one.end for one in found.segments] == ends[:-1]
        paths = {f"{log_id}/{path}" for one in found.segments for path in one.paths}
        kept = {path for path in repository.objects if f"/{MANIFESTS}/" not in path}
        assert kept == paths, "what a killed upload left is deleted"
        assert await pulled(store, "orders", 0) == before
        await tiering.close()
        shutil.rmtree(store.directory / "tier")


async def test_retention_waits_for_a_manifest_that_this_process_has_reconciled(
    store: MessageStore, clock: ManualClock
) -> None:
    repository = FaultyRepository()
    first = tier_of(store, repository, clock)
    await first.open()
    assert first.tiered_to == 0
    await brought_up(first)
    assert first.tiered_to == store.retention.segment_ends()[-2]
    await first.close()

    repository.fails = True
    second = tier_of(store, repository, clock)
    await second.open()
    await second.step()
    assert second.tiered_to == 0
    repository.fails = False
    await brought_up(second)
    assert second.tiered_to == first.tiered_to
    await second.close()


async def test_two_writers_never_overwrite_each_other(
    store: MessageStore, clock: ManualClock
) -> None:
    repository = FaultyRepository()
    one, other = tier_of(store, repository, clock), tier_of(store, repository, clock)
    for tiering in (one, other):
        await tiering.open()
    await one.step()  # one of them uploads the first segment
    await other.step()  # … and the other one the second
    await one.step()
    assert one.failure is not None
    assert "another broker" in one.failure
    await brought_up(one)
    await other.step()
    assert other.failure is not None
    assert "another broker" in other.failure
    await brought_up(other)

    found = latest(repository, store.state.log_id)
    assert found is not None
    assert [one.end for one in found.segments] == store.retention.segment_ends()[:-1]
    await one.close()


async def test_a_manifest_of_a_later_epoch_stops_a_former_master(
    store: MessageStore, clock: ManualClock
) -> None:
    repository = FaultyRepository()
    tiering = tier_of(store, repository, clock)
    await tiering.open()
    await brought_up(tiering)
    log_id = store.state.log_id
    found = latest(repository, log_id)
    assert found is not None
    later = msgspec.structs.replace(found, number=found.number + 1, epoch=7)
    path = f"{log_id}/{MANIFESTS}/{later.number:012d}.json"
    repository.objects[path] = msgspec.json.encode(later)
    await fill(store, clock, 1)

    for _ in range(3):
        await tiering.step()

    assert tiering.failure is not None
    assert "epoch 7" in tiering.failure
    assert latest(repository, log_id) == later
    await tiering.close()


async def test_a_replica_reads_the_tier_and_does_not_write_it(
    store: MessageStore, clock: ManualClock
) -> None:
    repository = FaultyRepository()
    replica = tier_of(store, repository, clock, is_master=False)
    await replica.open()
    await replica.step()
    assert not repository.objects
    await replica.close()
    writer = tier_of(store, repository, clock)
    await writer.open()
    await brought_up(writer)
    await writer.close()

    replica = tier_of(store, repository, clock, is_master=False)
    await replica.open()
    written = dict(repository.objects)
    await replica.step()
    assert replica.manifest == latest(repository, store.state.log_id)
    assert repository.objects == written
    assert replica.tiered_to == 0
    await replica.close()


async def test_segments_of_another_history_are_kept_and_not_read(
    tmp_path: Path, clock: ManualClock
) -> None:
    """As after a restore of an older backup: an operator must permit it."""
    with without_log_lines():
        store = await filled_store(tmp_path / "store", clock, 2)
        await store.close()
        shutil.copytree(tmp_path / "store", tmp_path / "other")
        store = await MessageStore.open(tmp_path / "store", small_settings(), clock)
        await fill(store, clock, 3)
        repository = FaultyRepository()
        tiering = tier_of(store, repository, clock)
        await tiering.open()
        await brought_up(tiering)
        lost = tiering.manifest
        assert lost is not None
        await tiering.close()
        await store.close()

        other = await MessageStore.open(tmp_path / "other", small_settings(), clock)
        await other.append(batch("orders", 2, [b"another history"]))
        await fill(other, clock, 3)
        tiering = tier_of(other, repository, clock)
        await tiering.open()
        before = await pulled(other, "orders", 0)
        await tiering.step()
        assert tiering.failure is not None
        assert "no election explains it" in tiering.failure
        assert latest(repository, other.state.log_id) == lost
        assert tiering.tiered_to == 0
        permission = other.directory / "tier" / "abandon"
        permission.touch()
        await brought_up(tiering)

        assert not permission.exists(), "it permits this, once"
        found = latest(repository, other.state.log_id)
        assert found is not None
        assert found.segments[0] == lost.segments[0]
        assert found.abandoned == [one for one in lost.segments if one not in found.segments] != []
        for segment in found.abandoned:
            assert f"{other.state.log_id}/{segment.path}" in repository.objects
        await delete_local(other, tiering)
        assert await pulled(other, "orders", 0) == before
        assert len(await pulled(other, "orders", 2)) == 1
        await tiering.close()
        await other.close()


async def test_a_damaged_record_is_not_uploaded(tmp_path: Path, clock: ManualClock) -> None:
    with without_log_lines():
        store = await filled_store(tmp_path / "store", clock, 3)
        path = store.log.file(0).path
        with path.open("r+b") as file:
            file.seek(5_000)
            file.write(b"\xff")
        repository = FaultyRepository()
        tiering = tier_of(store, repository, clock)
        await tiering.open()
        await tiering.step()

        assert tiering.failure is not None
        assert "is damaged" in tiering.failure
        assert tiering.tiered_to == 0
        assert latest(repository, store.state.log_id) is None
        await tiering.close()
        await store.close()


async def test_the_tiers_own_retention_moves_its_beginning(
    store: MessageStore, clock: ManualClock
) -> None:
    repository, log_id = FaultyRepository(), store.state.log_id
    ends = store.retention.segment_ends()
    tiering = tier_of(store, repository, clock, keep_hours=10)
    await tiering.open()
    await brought_up(tiering)
    clock.advance(11 * 3600)
    await fill(store, clock, 2)
    await brought_up(tiering)
    found = latest(repository, log_id)
    assert found is not None
    assert found.min_offset == 0, "the broker has them: nothing is deleted"

    await delete_local(store, tiering, 3)
    await brought_up(tiering)

    found = latest(repository, log_id)
    assert found is not None
    assert found.min_offset == store.log_min_offset
    gone = [one.segment for one in found.expired]
    assert [one.end for one in gone] == ends[:3]
    kept = {path for path in repository.objects if f"/{MANIFESTS}/" not in path}
    assert kept == {f"{log_id}/{path}" for one in found.named for path in one.paths}
    begin = store.queues.range("orders", 0)[0]
    assert begin == store.queues.local_range("orders", 0)[0] > 0
    assert store.queues.range("rare", 0) == (1, 1)

    clock.advance(25 * 3600)
    await store.append(batch("rare", 0, [b"a later one"]))
    await brought_up(tiering)
    found = latest(repository, log_id)
    assert found is not None
    assert not {one.segment for one in found.expired} & set(gone)
    assert not {f"{log_id}/{path}" for one in gone for path in one.paths} & set(repository.objects)
    await tiering.close()


async def test_what_a_wrong_clock_expired_comes_back(
    store: MessageStore, clock: ManualClock
) -> None:
    """The clock jumps a year ahead, and one message is stored; then the clock is set right."""
    repository = FaultyRepository()
    tiering = tier_of(store, repository, clock, keep_hours=10)
    await tiering.open()
    await brought_up(tiering)
    before = await pulled(store, "orders", 0)
    await delete_local(store, tiering, 3)
    clock.advance(365 * 24 * 3600)
    await store.append(batch("rare", 0, [b"from the future"]))
    await brought_up(tiering)
    assert store.queues.range("orders", 0)[0] > 0
    found = latest(repository, store.state.log_id)
    assert found is not None
    expired = [one.segment for one in found.expired]
    assert len(expired) == 3

    clock.advance(-365 * 24 * 3600)
    await brought_up(tiering)

    found = latest(repository, store.state.log_id)
    assert found is not None
    assert found.segments[:3] == expired
    assert not found.expired
    assert store.queues.range("orders", 0)[0] == 0
    assert await pulled(store, "orders", 0) == before
    await tiering.close()


async def test_a_tier_begins_where_the_log_does(store: MessageStore, clock: ManualClock) -> None:
    await delete_oldest_segments(store, 2)
    begin = store.queues.range("orders", 0)[0]
    before = await pulled(store, "orders", 0, begin)
    tiering = tier_of(store, FaultyRepository(), clock)
    await tiering.open()
    await brought_up(tiering)

    await delete_local(store, tiering)

    assert store.queues.range("orders", 0)[0] == begin
    assert store.queues.range("rare", 0) == (1, 1)
    assert await pulled(store, "orders", 0, begin) == before
    await tiering.close()
