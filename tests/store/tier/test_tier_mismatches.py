"""Tiers and stores that do not belong together, or have lost something: never believed, named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eruca.contract.errors import UnavailableError
from eruca_broker.core.tier.manifests import MANIFESTS
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tier.sides import Side, side_of
from eruca_broker.store.tiering.tiering import STEP_SECONDS, Tiering
from support.clocks import ManualClock
from support.stores import delete_oldest_segments
from support.tiers import (
    SETTINGS,
    FaultyRepository,
    brought_up,
    delete_local,
    fill,
    pulled,
)

pytestmark = pytest.mark.anyio


async def opened(store: MessageStore, repository: FaultyRepository, clock: ManualClock) -> Tiering:
    """Return the master's tier."""
    tiering = Tiering(store, repository, SETTINGS, clock, is_master=True)
    await tiering.open()
    return tiering


async def brought_up_at(
    store: MessageStore, repository: FaultyRepository, clock: ManualClock
) -> Tiering:
    """Return the master's tier, once it has all closed segments."""
    tiering = await opened(store, repository, clock)
    await brought_up(tiering)
    return tiering


async def failure_of(tiering: Tiering) -> str:
    """Return why a step fails."""
    await tiering.step()
    assert tiering.failure is not None
    return tiering.failure


async def test_an_empty_place_is_not_believed_once_a_manifest_was_known(
    store: MessageStore, clock: ManualClock
) -> None:
    mounted, unmounted = FaultyRepository(), FaultyRepository()
    tiering = await brought_up_at(store, mounted, clock)
    await delete_local(store, tiering)
    known = tiering.manifest
    assert known is not None
    await tiering.close()

    tiering = await opened(store, unmounted, clock)
    failure = await failure_of(tiering)

    assert f"expected the tier's manifest {known.number}" in failure
    assert tiering.manifest == known
    assert tiering.tiered_to == 0
    assert not unmounted.objects
    assert store.queues.range("orders", 0)[0] == 0
    await tiering.close()
    tiering = await brought_up_at(store, mounted, clock)
    assert tiering.manifest == known
    await tiering.close()


async def test_an_older_manifest_is_not_believed(store: MessageStore, clock: ManualClock) -> None:
    repository = FaultyRepository()
    tiering = await brought_up_at(store, repository, clock)
    known = tiering.manifest
    assert known is not None
    await tiering.close()
    latest = f"{store.state.log_id}/{MANIFESTS}/{known.number:012d}.json"
    del repository.objects[latest]

    tiering = await opened(store, repository, clock)

    assert "found none" in await failure_of(tiering)
    assert tiering.manifest == known
    await tiering.close()


async def test_a_writer_whose_place_is_replaced_keeps_its_segments(
    store: MessageStore, clock: ManualClock
) -> None:
    repository = FaultyRepository()
    tiering = await brought_up_at(store, repository, clock)
    mounted, repository.objects = repository.objects, {}
    await fill(store, clock, 1)

    assert "the tier lacks" in await failure_of(tiering)
    assert tiering.tiered_to == 0
    assert "was known here" in await failure_of(tiering)

    repository.objects = mounted
    await brought_up(tiering)
    assert tiering.tiered_to == store.retention.segment_ends()[-2]
    await tiering.close()


@pytest.mark.parametrize("kind", ["path", "side_path"])
@pytest.mark.parametrize("is_short", [False, True])
async def test_what_is_missing_in_the_tier_is_uploaded_again_if_it_is_here(
    store: MessageStore, clock: ManualClock, kind: str, *, is_short: bool
) -> None:
    repository = FaultyRepository()
    tiering = await brought_up_at(store, repository, clock)
    before = await pulled(store, "orders", 0)
    assert tiering.manifest is not None
    segment = tiering.manifest.segments[1]
    await tiering.close()
    path = f"{store.state.log_id}/{getattr(segment, kind)}"
    data = repository.objects.pop(path)
    if is_short:
        repository.objects[path] = data[:-1]

    tiering = await brought_up_at(store, repository, clock)
    await delete_local(store, tiering)

    assert tiering.faults.missing_count == 0
    assert tiering.uploaded_count == 3
    assert store.segment_count == 1
    assert await pulled(store, "orders", 0) == before
    await tiering.close()


async def test_what_is_missing_and_not_here_is_counted(
    store: MessageStore, clock: ManualClock
) -> None:
    repository = FaultyRepository()
    tiering = await brought_up_at(store, repository, clock)
    await delete_local(store, tiering)
    known = tiering.manifest
    assert known is not None
    await tiering.close()
    del repository.objects[f"{store.state.log_id}/{known.segments[1].path}"]

    tiering = await brought_up_at(store, repository, clock)

    assert tiering.faults.missing_count == 1
    assert tiering.manifest is not None
    assert tiering.manifest.segments == known.segments
    await tiering.close()


async def test_a_rotten_segment_does_not_disown_its_copy_in_the_tier(
    store: MessageStore, clock: ManualClock
) -> None:
    repository = FaultyRepository()
    tiering = await brought_up_at(store, repository, clock)
    known = tiering.manifest
    assert known is not None
    await tiering.close()
    last = known.segments[-1]
    with store.log.file(last.base).path.open("r+b") as file:
        file.seek(5_000)
        sound = file.read(1)
        file.seek(5_000)
        file.write(bytes([sound[0] ^ 1]))

    tiering = await opened(store, repository, clock)
    permission = store.directory / "tier" / "abandon"
    permission.touch()  # an operator's permission does not help either

    assert "is damaged" in await failure_of(tiering)
    assert tiering.manifest == known
    assert tiering.tiered_to == 0

    with store.log.file(last.base).path.open("r+b") as file:
        file.seek(5_000)
        file.write(sound)
    await brought_up(tiering)
    assert tiering.manifest == known
    await tiering.close()


async def test_a_manifest_older_than_the_logs_beginning_does_not_tell_where_queues_begin(
    store: MessageStore, clock: ManualClock, tmp_path: Path
) -> None:
    """A replica that has read "empty" follows its master, which has uploaded and deleted since."""
    repository, wakes = FaultyRepository(), list[None]()
    replica = Tiering(store, repository, SETTINGS, clock, is_master=False)
    await replica.open()
    await replica.step()
    replica.wake = lambda: wakes.append(None)
    assert store.queues.range("orders", 0)[0] == 0
    shutil.copytree(store.directory / "tier", tmp_path / "known")
    master = await brought_up_at(store, repository, clock)
    await delete_local(store, master)
    await master.close()

    store.queues.tier = replica.reader
    clock.advance(STEP_SECONDS)
    with pytest.raises(UnavailableError, match="only tells what the tier has up to 0"):
        store.queues.range("orders", 0)
    assert wakes == [None]
    await replica.close()

    shutil.rmtree(store.directory / "tier")
    shutil.copytree(tmp_path / "known", store.directory / "tier")
    replica = Tiering(store, repository, SETTINGS, clock, is_master=False)
    await replica.open()
    repository.fails = True
    await replica.step()
    with pytest.raises(UnavailableError, match="only tells what the tier has up to 0"):
        store.queues.range("orders", 0)

    repository.fails = False
    await replica.step()
    assert store.queues.range("orders", 0)[0] == 0
    assert len(await pulled(store, "orders", 0)) > 0
    await replica.close()


async def test_a_tier_that_begins_late_is_known_to_lack_what_was_before(
    store: MessageStore, clock: ManualClock
) -> None:
    """Retention has deleted without a tier: nothing is unknown."""
    await delete_oldest_segments(store, 2)
    begin = store.queues.local_range("orders", 0)[0]
    replica = Tiering(store, FaultyRepository(), SETTINGS, clock, is_master=False)
    await replica.open()
    await replica.step()
    assert store.queues.range("orders", 0)[0] == begin > 0
    await replica.close()


async def test_a_missing_object_does_not_stop_the_writer(
    store: MessageStore, clock: ManualClock
) -> None:
    repository = FaultyRepository()
    tiering = await brought_up_at(store, repository, clock)
    await delete_local(store, tiering)
    assert tiering.manifest is not None
    del repository.objects[f"{store.state.log_id}/{tiering.manifest.segments[0].path}"]
    reached = tiering.tiered_to

    with pytest.raises(UnavailableError, match="the tier lacks"):
        await pulled(store, "orders", 0)

    assert tiering.tiered_to == reached > 0
    requests = repository.requests
    await brought_up(tiering)
    assert repository.requests == requests, "nothing is reconciled again"
    await tiering.close()


async def test_a_side_object_has_its_blocks_before_it_is_filled(
    store: MessageStore, tmp_path: Path
) -> None:
    """On a full disk a write to a mapping without blocks would kill the process."""
    body, made, files = tmp_path / "room" / "side", list[Side](), list[tuple[int, int]]()
    steps = side_of(
        store.log.file(0).path,
        0,
        body,
        before={},
        is_current=lambda *_: True,
        chunk_size=4_096,
        done=made.append,
    )
    for _ in steps:
        if body.exists() and not files:
            found = body.stat()
            files.append((found.st_blocks * 512, found.st_size))

    [(allocated, size)] = files
    assert allocated >= size == made[0].body_size > 0
