"""A damaged record is repaired by a peer's copy, and by nothing else (rule 11)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eruca.contract.errors import RecordNotFoundError
from eruca.contract.records import LAYOUT_V4, RecordLayout
from eruca_broker.core.state.topic_events import TopicPut
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.scrub import STEP_SECONDS, Scrub
from eruca_broker.store.upkeep.record_repair import RefusedCopyError
from support.clocks import ManualClock
from support.limits import file_size_limit
from support.stores import batch, small_settings, without_log_lines

pytestmark = pytest.mark.anyio

AT_ONCE = STEP_SECONDS / 3600  # hours: a round in each step


@pytest.fixture(autouse=True)
def _without_log_lines() -> Iterator[None]:
    with without_log_lines():
        yield


class Store:
    """A store with messages in several segments, and its log as a peer has it."""

    def __init__(self, store: MessageStore, offsets: list[int]) -> None:
        self.store = store
        self.offsets = offsets
        self.log = self.files()

    def files(self) -> dict[str, bytes]:
        directory = self.store.directory / "commitlog"
        return {path.name: path.read_bytes() for path in directory.iterdir()}

    def copy(self, log_offset: int) -> bytes:
        """Return the record as the peer has it."""
        base = log_offset - log_offset % self.store.segment_bytes
        data = self.log[f"{base:020}"][log_offset - base :]
        return data[: int.from_bytes(data[:4])]

    def rest(self, log_offset: int) -> bytes:
        """Return the records up to the end of the segment, or of the log."""
        base = log_offset - log_offset % self.store.segment_bytes
        end = min(self.store.log_max_offset - base, self.store.segment_bytes)
        return self.log[f"{base:020}"][log_offset - base : end]

    def damage(self, log_offset: int, at: int, content: bytes = b"\x55") -> None:
        """Overwrite a part of a record."""
        path = self.store.log.file(log_offset).path
        with path.open("r+b") as file:
            file.seek(log_offset % self.store.segment_bytes + at)
            file.write(content)


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[Store]:
    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    await store.change(TopicPut("orders", 1, 1, "rw"))
    receipts = [
        await store.append(batch("orders", 0, [b"%03d" % number * 300])) for number in range(60)
    ]
    await store.upkeep.flush()
    yield Store(store, [receipt.log_offset for receipt in receipts])
    await store.close()


DAMAGED = {
    "body": (LAYOUT_V4.body + 5, b"\x00\x01"),
    "size": (0, b"\x7f"),
    "magic": (4, b"\x00\x00"),
    "own offset": (RecordLayout.LOG_OFFSET, b"\xff" * 8),
    "all": (0, bytes(200)),
}


@pytest.mark.parametrize("part", DAMAGED)
async def test_a_damaged_record_becomes_what_it_was(filled: Store, part: str) -> None:
    store = filled.store
    for place in (filled.offsets[0], filled.offsets[17], filled.offsets[-1]):
        filled.damage(place, *DAMAGED[part])
        with pytest.raises(RecordNotFoundError):
            store.log.raw(place)

        assert await store.upkeep.mend(place, filled.copy(place))

        assert filled.files() == filled.log
        assert store.log.raw(place) == filled.copy(place)


async def test_a_sound_record_is_left_alone(filled: Store) -> None:
    place = filled.offsets[4]

    assert not await filled.store.upkeep.mend(place, filled.copy(place))

    assert filled.files() == filled.log


async def test_nothing_but_the_record_s_own_copy_is_written(filled: Store) -> None:
    store, places = filled.store, filled.offsets
    place = places[8]
    copy = filled.copy(place)
    filled.damage(place, LAYOUT_V4.body)
    damaged = filled.files()
    changed = bytearray(copy)
    changed[LAYOUT_V4.body + 3] ^= 1

    for content in (bytes(changed), copy[:-1], copy + b"\1", filled.copy(places[9]), b""):
        with pytest.raises(RefusedCopyError, match="damaged"):
            await store.upkeep.mend(place, content)
    for outside in (store.log_max_offset, store.log_max_offset - 4, 2**40, -1):
        with pytest.raises(RecordNotFoundError, match="the log has no records"):
            await store.upkeep.mend(outside, copy)

    assert filled.files() == damaged


async def test_a_copy_of_another_log_is_refused(tmp_path: Path, filled: Store) -> None:
    """It is sound and names the same place, but the log has another record there."""
    other = await MessageStore.open(tmp_path / "other", small_settings(), ManualClock())
    await other.change(TopicPut("orders", 1, 1, "rw"))
    place = filled.offsets[0]
    receipt = await other.append(batch("orders", 0, [b"x" * 700]))
    assert receipt.log_offset == place
    copy = bytes(other.log.raw(place))
    await other.close()

    with pytest.raises(RefusedCopyError, match="is sound here"):
        await filled.store.upkeep.mend(place, copy)
    filled.damage(place, LAYOUT_V4.body)
    with pytest.raises(RefusedCopyError, match="it may be another log's"):
        await filled.store.upkeep.mend(place, copy)


async def test_a_disk_that_refuses_leaves_the_record_damaged(filled: Store) -> None:
    place = filled.offsets[-1]
    filled.damage(place, LAYOUT_V4.body)
    damaged = filled.files()

    with file_size_limit(place % filled.store.segment_bytes), pytest.raises(OSError, match="large"):
        await filled.store.upkeep.mend(place, filled.copy(place))

    assert filled.files() == damaged
    assert await filled.store.upkeep.mend(place, filled.copy(place))


async def test_repairing_takes_no_error_of_the_log_s_own_flush(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = filled.offsets[3]
    filled.damage(place, LAYOUT_V4.body)
    log: CommitLog = filled.store._log
    flushed: list[int] = []
    real = os.fdatasync

    def flush(descriptor: int) -> None:
        flushed.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", flush)

    await filled.store.upkeep.mend(place, filled.copy(place))

    assert flushed
    assert not {segment._descriptor for segment in log.segments} & {*flushed}


@pytest.mark.parametrize("part", DAMAGED)
async def test_the_scrub_has_damaged_records_repaired_and_goes_on(filled: Store, part: str) -> None:
    store, scrub = filled.store, Scrub(filled.store, hours=AT_ONCE)
    rotten = [filled.offsets[number] for number in (0, 30, 31, -1)]
    for place in rotten:
        filled.damage(place, *DAMAGED[part])
    reported: list[int] = []

    async def on_rot(log_offset: int) -> bool:
        reported.append(log_offset)
        return await store.upkeep.mend(log_offset, filled.rest(log_offset))

    scrub.on_rot = on_rot
    while not scrub.rounds:
        await scrub.step()

    assert (reported, scrub.damaged_count) == ([it for it in rotten if it != rotten[2]], 0)
    assert filled.files() == filled.log


async def test_neighbours_that_do_not_show_where_they_end_are_repaired_together(
    filled: Store,
) -> None:
    """A bad sector: the second one's beginning is damaged, so no other copy proves its length."""
    store, (first, second, third) = filled.store, filled.offsets[20:23]
    filled.damage(first, 0, bytes(third - first - 40))

    with pytest.raises(RefusedCopyError, match=f"beginning of a record at log offset {second}"):
        await store.upkeep.mend(first, filled.copy(first))
    assert await store.upkeep.mend(first, filled.copy(first) + filled.copy(second))

    assert filled.files() == filled.log


async def test_a_damaged_blank_record_is_repaired_with_the_record_before_it(filled: Store) -> None:
    store = filled.store
    end = store.segment_bytes
    last = max(it for it in filled.offsets if it < end)
    blank = last + len(filled.copy(last))
    filled.damage(blank, 0, b"\xff" * 8)

    assert await store.upkeep.mend(last, filled.rest(last))

    assert filled.files() == filled.log


async def test_a_record_that_cannot_be_repaired_counts(filled: Store) -> None:
    scrub = Scrub(filled.store, hours=AT_ONCE)
    filled.damage(filled.offsets[5], LAYOUT_V4.body)
    asked: list[int] = []

    async def told(log_offset: int) -> bool:
        asked.append(log_offset)
        return True  # but the disk does not keep it

    scrub.on_rot = told
    while scrub.rounds < 2:
        await scrub.step()

    assert asked == [filled.offsets[5]] * 2
    assert scrub.damaged_count == 1
