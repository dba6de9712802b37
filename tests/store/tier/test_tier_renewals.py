"""Side objects of earlier versions are renewed: their segments can be searched, too."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from eruca_broker.core.state.events import TopicDeleted, TopicPut
from eruca_broker.core.tier import queue_tables
from eruca_broker.core.tier.manifests import (
    MANIFESTS,
    Manifest,
    decoded,
    encoded,
    name_of,
    number_of,
)
from eruca_broker.core.tier.steps import GRACE_MS
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.reading.tiered_keys import FoundByKey
from eruca_broker.store.tier import sides
from eruca_broker.store.tiering import renewals
from eruca_broker.store.tiering.renewals import PAUSE_SECONDS, RETRY_SECONDS
from support.clocks import ManualClock
from support.stores import batch
from support.tiers import (
    STEPS_MAX,
    FaultyRepository,
    brought_up,
    delete_local,
    opened_tier,
    pulled,
    tiered,
)

pytestmark = pytest.mark.anyio
SEGMENTS = 5


@pytest.fixture
async def old_tier(
    store: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> FaultyRepository:
    """Return a tier that an earlier version has uploaded, without keys."""
    end = store.segment_count + SEGMENTS
    number = 0
    while store.segment_count < end:
        clock.advance(1.0)
        body = b"%d" % number + bytes(1_500)
        await store.append(batch("orders", number % 3, [body], keys=f"all k{number % 7}"))
        number += 1
    await store.change(TopicDeleted("rare"))
    await store.change(TopicPut("rare", 1, 1, "rw"))
    await store.append(batch("rare", 0, [bytes(23_000)]))  # the segment is full
    await store.append(batch("rare", 0, [bytes(2_000)]))
    await store.upkeep.flush()
    repository = FaultyRepository()
    with monkeypatch.context() as earlier:
        earlier.setattr(queue_tables, "FORMAT", 1)
        earlier.setattr(sides, "KEYS_MAX", 0)
        tiering = await opened_tier(store, clock, repository)
        await brought_up(tiering)
        await tiering.close()
    return repository


def latest(repository: FaultyRepository, log_id: str) -> Manifest:
    """Return the latest manifest; each object must be named by it, or be a manifest."""
    paths = [path.removeprefix(f"{log_id}/") for path in repository.objects]
    number = max(number_of(path) or 0 for path in paths)
    data = repository.objects[f"{log_id}/{name_of(number)}"]
    manifest = decoded(data, number=number, log_id=log_id)
    overtaken = {one.path for one in manifest.overtaken}
    assert {path for path in paths if not path.startswith(MANIFESTS)} == manifest.paths | overtaken
    return manifest


async def find(store: MessageStore, key: str) -> FoundByKey:
    """Return all messages with *key*, in one page after the other."""
    found, before = FoundByKey(), None
    while True:
        look = partial(
            store.keys.find,
            *("orders", key),
            count_max=1_000,
            begin_ms=0,
            end_ms=2**62,
            before_offset=before,
        )
        page = await store.cold.read("reader", look)
        found.records += page.records
        found.without_keys += page.without_keys
        if page.rest is None:
            return found
        before = page.rest


def offsets(found: FoundByKey) -> list[int]:
    return [record.log_offset for record in found.records]


@pytest.mark.parametrize("is_here", [True, False], ids=["on the disk", "only in the tier"])
async def test_keys_are_found_in_segments_that_were_uploaded_without(
    store: MessageStore,
    clock: ManualClock,
    old_tier: FaultyRepository,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_here: bool,
) -> None:
    expected = {key: offsets(await find(store, key)) for key in ("all", "k3", "none")}
    messages = {key: await pulled(store, "orders", key) for key in range(3)}
    tiering = await opened_tier(store, clock, old_tier)
    if not is_here:
        with monkeypatch.context() as idle:
            idle.setattr(renewals, "HEADS_PER_STEP", 0)
            await brought_up(tiering)
        await delete_local(store, tiering)
        assert (await find(store, "all")).without_keys

    await brought_up(tiering)
    await delete_local(store, tiering)

    assert store.log_min_offset > 0
    for key, places in expected.items():
        found = await find(store, key)
        assert offsets(found) == places
        assert not found.without_keys
    assert {key: await pulled(store, "orders", key) for key in range(3)} == messages
    manifest = latest(old_tier, store.state.log_id)
    assert tiering.renewals.count == len(manifest.segments)
    assert not [*tiering.directory.glob("*.unfinished")]
    await tiering.close()


async def test_a_kill_at_any_request_leaves_a_tier_that_is_renewed_by_the_next_start(
    store: MessageStore,
    clock: ManualClock,
    old_tier: FaultyRepository,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = offsets(await find(store, "all"))
    tiering = await opened_tier(store, clock, old_tier)
    await tiering.step()  # it has taken over, and renewed one
    await delete_local(store, tiering)
    await tiering.close()
    kills = 0
    while True:
        tiering = await opened_tier(store, clock, old_tier)
        old_tier.requests_left = kills
        for _ in range(STEPS_MAX):
            if await tiering.step():
                break
        old_tier.requests_left = None
        await tiering.close()
        kills += 1
        tiering = await opened_tier(store, clock, old_tier)
        with monkeypatch.context() as idle:
            idle.setattr(renewals, "HEADS_PER_STEP", 0)
            await brought_up(tiering)  # it deletes what nobody names
        heads = [one.side_upload for one in latest(old_tier, store.state.log_id).segments]
        await tiering.close()
        if all(heads):
            break
    assert kills > 20

    tiering = await opened_tier(store, clock, old_tier)
    await brought_up(tiering)
    found = await find(store, "all")
    assert (offsets(found), found.without_keys) == (expected, [])
    await tiering.close()


async def test_times_that_an_earlier_version_took_from_the_ends_become_the_extremes(
    store: MessageStore, clock: ManualClock, old_tier: FaultyRepository
) -> None:
    log_id = store.state.log_id
    manifest = latest(old_tier, log_id)
    wrong = [replace(one, first_ms=one.last_ms, last_ms=one.first_ms) for one in manifest.segments]
    path = f"{log_id}/{name_of(manifest.number)}"
    old_tier.objects[path] = encoded(replace(manifest, segments=wrong))
    tiering = await opened_tier(store, clock, old_tier)

    await brought_up(tiering)

    times = [(one.first_ms, one.last_ms) for one in latest(old_tier, log_id).segments]
    assert times == [(one.first_ms, one.last_ms) for one in manifest.segments]
    await tiering.close()


async def test_a_damaged_segment_holds_up_no_other_and_is_renewed_once_it_is_sound(
    store: MessageStore, clock: ManualClock, old_tier: FaultyRepository
) -> None:
    log_id = store.state.log_id
    segments = latest(old_tier, log_id).segments
    path = f"{log_id}/{segments[1].path}"
    sound = old_tier.objects[path]
    old_tier.objects[path] = sound[:100] + bytes([sound[100] ^ 1]) + sound[101:]
    tiering = await opened_tier(store, clock, old_tier)
    tiering.renewals._local = lambda _: None  # as if they were only in the tier

    await brought_up(tiering)

    def left() -> list[int]:
        named = latest(old_tier, log_id).segments
        return [one.base for one in named if not one.side_upload]

    assert left() == [segments[1].base]
    old_tier.objects[path] = sound
    await brought_up(tiering)
    assert left() == [segments[1].base], "not at once: each look would read a segment"
    clock.advance(RETRY_SECONDS)
    await brought_up(tiering)
    assert left() == []
    await tiering.close()


async def test_a_segment_with_too_many_keys_is_renewed_once_and_named(
    store: MessageStore,
    clock: ManualClock,
    old_tier: FaultyRepository,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sides, "KEYS_MAX", 0)
    for _ in range(2):
        tiering = await tiered(store, clock, old_tier)
        last = tiering.renewals.count
        await tiering.close()

    assert last == 0, "the second start has nothing to do"
    assert all(one.side_upload for one in latest(old_tier, store.state.log_id).segments)
    tiering = await opened_tier(store, clock, old_tier)
    assert (await find(store, "all")).without_keys
    await tiering.close()


async def test_without_room_for_a_segment_none_is_fetched(
    store: MessageStore, clock: ManualClock, old_tier: FaultyRepository
) -> None:
    tiering = await opened_tier(store, clock, old_tier, disk_high_ratio=0.0)
    tiering.renewals._local = lambda _: None
    before = dict(old_tier.objects)

    await brought_up(tiering)

    assert old_tier.objects == before
    assert tiering.renewals.count == 0
    await tiering.close()


async def test_those_who_read_an_earlier_manifest_find_its_objects_for_a_day(
    store: MessageStore, clock: ManualClock, old_tier: FaultyRepository
) -> None:
    """A replica that copies the log reads one manifest for hours, and so does a restore."""
    log_id = store.state.log_id
    earlier = {f"{log_id}/{path}" for path in latest(old_tier, log_id).paths}
    tiering = await opened_tier(store, clock, old_tier)
    await brought_up(tiering)
    assert tiering.renewals.count == len(latest(old_tier, log_id).segments)
    await tiering.close()

    tiering = await opened_tier(store, clock, old_tier)  # the next writer keeps them, too
    await brought_up(tiering)
    assert earlier <= old_tier.objects.keys()

    clock.advance(GRACE_MS / 1000)
    await store.append(batch("rare", 0, [b"later"]))
    await store.upkeep.flush()
    await brought_up(tiering)
    manifest = latest(old_tier, log_id)
    assert manifest.overtaken == []
    assert not {f"{log_id}/{one.side_path}" for one in manifest.segments} & earlier
    assert len(earlier & old_tier.objects.keys()) == len(manifest.segments)
    await tiering.close()


async def test_a_tier_that_refuses_writes_is_not_fetched_again_and_again(
    store: MessageStore, clock: ManualClock, old_tier: FaultyRepository
) -> None:
    tiering = await opened_tier(store, clock, old_tier)
    tiering.renewals._local = lambda _: None
    segment = max(one.end - one.base for one in latest(old_tier, store.state.log_id).segments)
    old_tier.is_read_only = True
    hours, failures = 2, set[str | None]()
    end = clock.monotonic() + hours * 3_600
    while clock.monotonic() < end:
        clock.advance(await tiering.step() or 1.0)
        failures.add(tiering.failure)

    assert old_tier.read_bytes < 2 * segment, "one was fetched, and a few heads"
    [failure] = failures
    assert failure is not None
    assert "refuses writes" in failure

    old_tier.is_read_only = False
    clock.advance(RETRY_SECONDS)
    await brought_up(tiering)
    assert all(one.side_upload for one in latest(old_tier, store.state.log_id).segments)
    await tiering.close()


async def test_a_tier_that_is_away_for_a_moment_leaves_no_segment_for_an_hour(
    store: MessageStore, clock: ManualClock, old_tier: FaultyRepository
) -> None:
    tiering = await opened_tier(store, clock, old_tier)
    tiering.renewals._local = lambda _: None
    await tiering.step()  # one is renewed
    old_tier.requests_left = 3  # in the middle of the next one
    for _ in range(3):
        clock.advance(await tiering.step() or 1.0)
    old_tier.requests_left = None
    assert not all(one.side_upload for one in latest(old_tier, store.state.log_id).segments)

    clock.advance(PAUSE_SECONDS)
    await brought_up(tiering)

    assert all(one.side_upload for one in latest(old_tier, store.state.log_id).segments)
    await tiering.close()


async def test_an_earlier_version_does_not_read_a_manifest_with_renewed_objects(
    store: MessageStore, clock: ManualClock, old_tier: FaultyRepository
) -> None:
    """It would look for the earlier ones, and delete the renewed ones as nobody's."""
    log_id = store.state.log_id
    number = latest(old_tier, log_id).number
    data = old_tier.objects[f"{log_id}/{name_of(number)}"]
    assert msgspec.json.decode(data)["format"] == 1

    tiering = await opened_tier(store, clock, old_tier)
    await brought_up(tiering)

    number = latest(old_tier, log_id).number
    data = old_tier.objects[f"{log_id}/{name_of(number)}"]
    assert msgspec.json.decode(data)["format"] == 2
    await tiering.close()


async def test_nothing_is_renewed_that_earlier_versions_may_have_to_read(
    store: MessageStore, clock: ManualClock, old_tier: FaultyRepository
) -> None:
    before = latest(old_tier, store.state.log_id)
    tiering = await opened_tier(store, clock, old_tier, renews=False)
    await brought_up(tiering)
    held_off = old_tier.read_bytes
    await brought_up(tiering)
    await tiering.close()
    assert latest(old_tier, store.state.log_id).segments == before.segments
    assert old_tier.read_bytes == held_off, "one look tells that there are some"

    tiering = await opened_tier(store, clock, old_tier)
    assert await tiering.step() == 0.0  # the first one
    await tiering.close()
    tiering = await opened_tier(store, clock, old_tier, renews=False)
    await brought_up(tiering)
    await tiering.close()

    assert all(one.side_upload for one in latest(old_tier, store.state.log_id).segments)
