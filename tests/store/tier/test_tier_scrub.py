"""The tier's scrub: it finds what is missing or damaged, and repairs what the disk still has."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eruca_broker.core.tier.manifests import TierSegment
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tiering import scrub as scrubbing
from eruca_broker.store.tiering.scrub import TierScrub
from eruca_broker.store.tiering.tiering import Tiering
from support.clocks import ManualClock
from support.tiers import SETTINGS, FaultyRepository, brought_up, delete_local, pulled

pytestmark = pytest.mark.anyio

ROUND_HOURS = 1 / 3600  # all of it in one step
STEPS_MAX = 20


@pytest.fixture
def repository() -> FaultyRepository:
    return FaultyRepository()


@pytest.fixture
async def tiering(
    store: MessageStore, repository: FaultyRepository, clock: ManualClock
) -> AsyncIterator[Tiering]:
    tiering = Tiering(store, repository, SETTINGS, clock, is_master=True)
    await tiering.open()
    await brought_up(tiering)
    yield tiering
    await tiering.close()


async def end_round(scrub: TierScrub, count: int = 1) -> None:
    """Step until a round more has ended; some steps after it may belong to the next one."""
    end = scrub.rounds + count
    for _ in range(STEPS_MAX):
        await scrub.step()
        if scrub.rounds >= end:
            return
    raise AssertionError("the round never ends")


def segments_of(tiering: Tiering) -> list[TierSegment]:
    assert tiering.manifest is not None
    return tiering.manifest.segments


def at(store: MessageStore, path: str) -> str:
    return f"{store.state.log_id}/{path}"


def change(repository: FaultyRepository, path: str, position: int) -> None:
    data = bytearray(repository.objects[path])
    data[position] ^= 1
    repository.objects[path] = bytes(data)


async def test_a_sound_tier_is_read_as_a_whole_and_nothing_is_written(
    store: MessageStore, repository: FaultyRepository, tiering: Tiering
) -> None:
    before = dict(repository.objects)
    scrub = TierScrub(tiering, hours=ROUND_HOURS)

    await end_round(scrub, 2)

    assert tiering.faults.known == {}
    assert scrub.repaired_count == 0
    assert repository.objects == before


@pytest.mark.parametrize("what", ["segment", "head", "entries", "no segment", "no side"])
async def test_what_the_disk_still_has_is_repaired_byte_for_byte(
    store: MessageStore, repository: FaultyRepository, tiering: Tiering, what: str
) -> None:
    segment = segments_of(tiering)[1]
    log, side = at(store, segment.path), at(store, segment.side_path)
    sound = dict(repository.objects)
    match what:
        case "segment":
            change(repository, log, segment.end - segment.base - 1)
        case "head":
            change(repository, side, 5)
        case "entries":
            change(repository, side, segment.head_size + 3)
        case "no segment":
            del repository.objects[log]
        case _:
            del repository.objects[side]
    scrub = TierScrub(tiering, hours=ROUND_HOURS)

    await end_round(scrub)

    assert repository.objects == sound
    assert scrub.repaired_count == 1
    assert tiering.faults.known == {}
    assert not tiering.directory.joinpath("side.unfinished").exists()


async def test_what_the_disk_has_no_more_is_reported_and_stays(
    store: MessageStore, repository: FaultyRepository, tiering: Tiering
) -> None:
    await delete_local(store, tiering)
    segment, other = segments_of(tiering)[:2]
    log = at(store, segment.path)
    sound = repository.objects[log]
    change(repository, log, 0)
    damaged = dict(repository.objects)
    side = repository.objects.pop(at(store, other.side_path))
    scrub = TierScrub(tiering, hours=ROUND_HOURS)

    await end_round(scrub)
    await end_round(scrub)

    assert tiering.faults.known == {segment.path: "damaged", other.side_path: "missing"}
    assert (tiering.faults.damaged_count, tiering.faults.missing_count) == (1, 1)
    assert scrub.repaired_count == 0
    repository.objects[at(store, other.side_path)] = side
    assert repository.objects == damaged, "nothing is deleted or written"

    repository.objects[log] = sound  # an operator has restored both
    await end_round(scrub)
    assert tiering.faults.known == {}


async def test_retention_keeps_the_last_sound_copy(
    store: MessageStore,
    repository: FaultyRepository,
    tiering: Tiering,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    segment = segments_of(tiering)[1]
    expected = await pulled(store, "orders", 0)
    change(repository, at(store, segment.path), 9)
    repository.dies_after = 0  # it can be read, and not be written
    scrub = TierScrub(tiering, hours=ROUND_HOURS)

    await scrub.step()

    assert tiering.faults.known == {segment.path: "damaged"}
    assert tiering.tiered_to == segment.base
    await delete_local(store, tiering)
    assert store.log_min_offset == segment.base
    monkeypatch.setattr(scrubbing, "RETRY_SECONDS", 0)
    repository.dies_after = None
    scrub = TierScrub(tiering, hours=ROUND_HOURS)
    await end_round(scrub)
    assert scrub.repaired_count == 1
    assert tiering.tiered_to == segments_of(tiering)[-1].end
    await delete_local(store, tiering)
    assert await pulled(store, "orders", 0) == expected


async def test_a_tier_that_is_away_says_nothing_of_its_objects_and_the_round_goes_on_later(
    store: MessageStore,
    repository: FaultyRepository,
    tiering: Tiering,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scrubbing, "RETRY_SECONDS", 2)
    scrub = TierScrub(tiering, hours=ROUND_HOURS)
    repository.fails = True
    await scrub.step()
    asked = repository.requests
    assert tiering.faults.known == {}
    await scrub.step()
    assert repository.requests == asked, "it waits"
    repository.fails = False
    await end_round(scrub)
    assert tiering.faults.known == {}


async def test_a_round_reads_at_a_steady_rate_and_goes_on_after_a_restart(
    store: MessageStore,
    repository: FaultyRepository,
    tiering: Tiering,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scrubbing, "SAVE_SECONDS", 1)
    size = sum(one.end - one.base + one.side_size for one in segments_of(tiering))
    scrub = TierScrub(tiering, hours=100 / 3600)
    repository.requests = 0
    for _ in range(50):
        await scrub.step()
    read = sum(one.end - one.base for one in segments_of(tiering) if one.end <= scrub.offset)
    assert 0.25 * size < read < 0.6 * size
    assert scrub.rounds == 0
    tiering.faults.note(segments_of(tiering)[0].path, "damaged")
    await scrub.step()
    reached = scrub.offset
    tiering.faults.keep(())

    scrub = TierScrub(tiering, hours=100 / 3600)
    await scrub.step()
    assert scrub.offset == reached
    assert tiering.faults.damaged_count == 1


async def test_only_the_writer_scrubs(
    store: MessageStore, repository: FaultyRepository, tiering: Tiering, clock: ManualClock
) -> None:
    replica = Tiering(store, repository, SETTINGS, clock, is_master=False)
    scrub = TierScrub(replica, hours=ROUND_HOURS)
    repository.requests = 0
    await scrub.step()
    assert repository.requests == 0
