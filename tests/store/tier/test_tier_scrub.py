"""The tier's scrub: it finds what is missing or damaged, and repairs what the disk still has."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eruca_broker.core.tier import queue_tables
from eruca_broker.core.tier.manifests import TierSegment
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tier import sides
from eruca_broker.store.tiering import scrub as scrubbing
from eruca_broker.store.tiering import uploads
from eruca_broker.store.tiering.scrub import TierScrub
from eruca_broker.store.tiering.tiering import Tiering
from support.clocks import ManualClock
from support.stores import batch
from support.tiers import (
    SETTINGS,
    FaultyRepository,
    brought_up,
    delete_local,
    fill,
    opened_tier,
    pulled,
)

pytestmark = pytest.mark.anyio

ROUND_HOURS = 1 / 3600  # all of it in one step
STEPS_MAX = 20


@pytest.fixture
async def tiering(
    store: MessageStore, repository: FaultyRepository, clock: ManualClock
) -> AsyncIterator[Tiering]:
    tiering = await opened_tier(store, clock, repository)
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


class UnreadableRepository(FaultyRepository):
    """A repository one of whose objects cannot be read, until it is stored again.

    Attributes:
        unreadable: Its path.
        error: The reason; None: reading it never ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unreadable = ""
        self.error: OSError | None = None

    async def get_range(self, path: str, begin: int, end: int) -> bytes:
        if path == self.unreadable:
            if self.error is not None:
                raise self.error
            await asyncio.Event().wait()
        return await super().get_range(path, begin, end)

    async def put_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        await super().put_parts(path, parts)
        if path == self.unreadable:
            self.unreadable = ""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a scrub wait for nothing."""
    monkeypatch.setattr(scrubbing, "RETRY_SECONDS", 0)


@pytest.mark.usefixtures("at_once")
async def test_a_sound_chunk_says_nothing_of_the_others(
    store: MessageStore, repository: FaultyRepository, tiering: Tiering
) -> None:
    """A gateway has damaged the first chunk once; the second one is damaged for good."""
    sound = dict(repository.objects)
    segment = segments_of(tiering)[1]
    log = at(store, segment.path)
    change(repository, log, 0)
    change(repository, log, SETTINGS.chunk_size)
    repository.dies_after = 0
    scrub = TierScrub(tiering, hours=ROUND_HOURS)
    await scrub.step()
    change(repository, log, 0)

    await scrub.step()

    assert tiering.faults.known == {segment.path: "damaged"}
    assert tiering.tiered_to == segment.base, "retention keeps the segment"
    repository.dies_after = None
    await end_round(scrub)
    assert repository.objects == sound
    assert tiering.faults.known == {}


@pytest.mark.usefixtures("at_once")
async def test_a_segment_that_cannot_be_read_here_holds_up_no_other(
    store: MessageStore,
    repository: FaultyRepository,
    tiering: Tiering,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(path: Path, *_: object) -> Iterator[None]:
        raise OSError(errno.EIO, "the disk fails", str(path))
        yield

    first, _, third = segments_of(tiering)[:3]
    change(repository, at(store, first.side_path), first.head_size)
    change(repository, at(store, third.path), 0)
    monkeypatch.setattr(uploads, "digests_of", failing)
    scrub = TierScrub(tiering, hours=ROUND_HOURS)

    await end_round(scrub)

    assert tiering.faults.known == {first.side_path: "damaged", third.path: "damaged"}
    assert tiering.failure is None


@pytest.mark.usefixtures("at_once")
async def test_a_record_that_is_damaged_here_holds_up_no_other(
    store: MessageStore,
    repository: FaultyRepository,
    tiering: Tiering,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object, **__: object) -> Iterator[None]:
        raise sides.DamagedSegmentError("the record at log offset 7 is damaged")
        yield

    first, second = segments_of(tiering)[:2]
    change(repository, at(store, first.side_path), first.head_size)
    change(repository, at(store, second.path), 0)
    monkeypatch.setattr("eruca_broker.store.tiering.repairs.side_of", failing)
    scrub = TierScrub(tiering, hours=ROUND_HOURS)

    await end_round(scrub)

    assert tiering.faults.known == {first.side_path: "damaged"}
    assert scrub.repaired_count == 1, "the other one"


@pytest.mark.usefixtures("at_once")
async def test_a_head_is_not_built_without_that_of_the_segment_before(
    store: MessageStore, repository: FaultyRepository, tiering: Tiering
) -> None:
    await delete_local(store, tiering, 2)
    gone, here, other = segments_of(tiering)[1:4]
    assert here.base == store.log_min_offset
    del repository.objects[at(store, gone.side_path)]
    del repository.objects[at(store, here.side_path)]
    change(repository, at(store, other.path), 0)
    scrub = TierScrub(tiering, hours=ROUND_HOURS)

    await end_round(scrub)

    assert tiering.faults.known == {gone.side_path: "missing", here.side_path: "missing"}
    assert scrub.repaired_count == 1, "the other one"


@pytest.mark.parametrize("is_old", [False, True])
async def test_a_side_object_without_keys_is_repaired_without_keys(
    store: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, *, is_old: bool
) -> None:
    repository = FaultyRepository()
    await store.append(batch("orders", 0, [bytes(300)] * 5, keys="k"))
    await fill(store, clock, 1)
    tiering = Tiering(store, repository, SETTINGS, clock, is_master=True)
    await tiering.open()
    with monkeypatch.context() as earlier:
        earlier.setattr(sides, "KEYS_MAX", 0)
        if is_old:
            earlier.setattr(queue_tables, "FORMAT", 1)
        await brought_up(tiering)
    sound = dict(repository.objects)
    segment = segments_of(tiering)[-1]
    head = sound[at(store, segment.side_path)][: segment.head_size]
    assert queue_tables.decoded(head).head.key_count is None
    change(repository, at(store, segment.side_path), segment.head_size + 3)
    scrub = TierScrub(tiering, hours=ROUND_HOURS)

    await end_round(scrub)

    assert tiering.faults.known == {}
    assert repository.objects == sound
    await tiering.close()


async def test_heads_of_a_later_version_are_not_taken_for_damage(
    tiering: Tiering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_tables, "_READABLE", (1,))
    scrub = TierScrub(tiering, hours=ROUND_HOURS)

    await end_round(scrub, 2)

    assert tiering.faults.known == {}
    assert scrub.repaired_count == 0


@pytest.mark.usefixtures("at_once")
async def test_a_tier_that_can_only_be_read_is_read_to_its_end(
    store: MessageStore, repository: FaultyRepository, tiering: Tiering
) -> None:
    first, second = segments_of(tiering)[:2]
    change(repository, at(store, first.path), 0)
    change(repository, at(store, second.path), 0)
    repository.dies_after = 0
    scrub = TierScrub(tiering, hours=ROUND_HOURS)

    await end_round(scrub)

    assert tiering.faults.known == {first.path: "damaged", second.path: "damaged"}
    repository.dies_after = None
    await end_round(scrub)
    assert tiering.faults.known == {}, "each round tries again"
    assert scrub.repaired_count == 2


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "the object's disk fails"), None], ids=["fails", "hangs"]
)
async def test_an_object_that_can_never_be_read_is_stored_again(
    store: MessageStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    error: OSError | None,
) -> None:
    repository = UnreadableRepository()
    tiering = Tiering(store, repository, SETTINGS, clock, is_master=True)
    await tiering.open()
    await brought_up(tiering)
    monkeypatch.setattr(uploads, "ANSWER_SECONDS", 0.2)
    repository.unreadable = at(store, segments_of(tiering)[1].path)
    repository.error = error
    scrub = TierScrub(tiering, hours=ROUND_HOURS)

    async with asyncio.timeout(30):
        await end_round(scrub)

    assert repository.unreadable == ""
    assert scrub.repaired_count == 1
    assert tiering.faults.known == {}
    await tiering.close()


@pytest.mark.usefixtures("at_once")
async def test_a_tier_that_is_away_for_long_is_not_damaged(
    repository: FaultyRepository, tiering: Tiering
) -> None:
    scrub = TierScrub(tiering, hours=ROUND_HOURS)
    repository.fails = True
    for _ in range(3 * scrubbing.TRIES_MAX):
        await scrub.step()
    assert tiering.faults.known == {}
    repository.fails = False
    await end_round(scrub)
    assert scrub.repaired_count == 0


@pytest.mark.usefixtures("at_once")
async def test_a_folder_that_is_not_mounted_lacks_no_objects(
    repository: FaultyRepository, tiering: Tiering
) -> None:
    scrub = TierScrub(tiering, hours=ROUND_HOURS)
    sound = dict(repository.objects)
    repository.objects.clear()

    for _ in range(3 * scrubbing.TRIES_MAX):
        await scrub.step()

    assert tiering.faults.known == {}
    assert repository.objects == {}, "nothing is written to another place"
    repository.objects |= sound
    await end_round(scrub)
    assert scrub.repaired_count == 0


async def test_the_fault_of_an_expired_segment_is_forgotten(
    store: MessageStore, clock: ManualClock
) -> None:
    repository = FaultyRepository()
    settings = replace(SETTINGS, keep_hours=10)
    tiering = Tiering(store, repository, settings, clock, is_master=True)
    await tiering.open()
    await brought_up(tiering)
    await delete_local(store, tiering, 2)
    segment = segments_of(tiering)[0]
    change(repository, at(store, segment.path), 0)
    await end_round(TierScrub(tiering, hours=ROUND_HOURS))
    assert tiering.faults.known == {segment.path: "damaged"}

    clock.advance(11 * 3600)
    await store.append(batch("rare", 0, [b"later"]))
    await brought_up(tiering)

    assert segment not in segments_of(tiering)
    assert tiering.faults.known == {}
    await tiering.close()


async def test_saved_faults_count_before_retention_does_and_only_those_of_the_manifest(
    store: MessageStore,
    repository: FaultyRepository,
    tiering: Tiering,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scrubbing, "SAVE_SECONDS", 1)
    segment = segments_of(tiering)[1]
    scrub = TierScrub(tiering, hours=100 / 3600)
    tiering.faults.note(segment.path, "damaged")
    await scrub.step()
    tiering.faults.note("segments/gone.log", "missing")
    await scrub.step()
    await tiering.close()

    replica = Tiering(store, repository, SETTINGS, clock, is_master=False)
    await replica.open()
    await replica.step()
    await TierScrub(replica, hours=100 / 3600).step()
    assert replica.faults.known == {}, "it does not learn of repairs"
    await replica.close()

    master = Tiering(store, repository, SETTINGS, clock, is_master=True)
    await master.open()
    scrub = TierScrub(master, hours=100 / 3600)
    await brought_up(master)
    assert master.faults.known == {segment.path: "damaged"}
    assert master.tiered_to == segment.base
    await scrub.step()
    assert master.faults.known == {segment.path: "damaged"}
    await master.close()
