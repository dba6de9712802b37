"""The log feed behind the beginning of the log here: the same records, and never a gap."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from eruca.contract.errors import RecordNotFoundError, StaleEpochError, UnavailableError
from eruca.core.messages.log_block import split_log_block
from eruca_broker.core.consuming.held_pulls import Examined, Position
from eruca_broker.core.replication.log_positions import epoch_before
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.processors.held_requests import HeldRequests
from eruca_broker.processors.log_feed import LogFeed
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tiering.tiering import Tiering
from support.clocks import ManualClock
from support.stores import (
    batch,
    delete_oldest_segments,
    new_term,
    small_settings,
    without_log_lines,
)
from support.tiers import (
    SETTINGS,
    FaultyRepository,
    brought_up,
    delete_local,
    fill,
    opened_tier,
    tiered,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tiering(
    store: MessageStore, clock: ManualClock, repository: FaultyRepository
) -> AsyncIterator[Tiering]:
    tiering = await opened_tier(store, clock, repository)
    yield tiering
    await tiering.close()


async def fed(store: MessageStore, begin: int = 0, *, bytes_max: int = 3_000) -> dict[int, bytes]:
    """Return all records from *begin* on by their log offsets, as the feed sends them."""
    found: dict[int, bytes] = {}
    offset = begin
    while offset < store.visible_offset:
        read = await store.cold.read("reader", partial(store.whole_log.read, offset, bytes_max))
        assert not read.damaged
        assert read.next_offset > offset, "a reader would stay where it is"
        records = list(split_log_block("", bytes(read.records)))
        assert records or read.next_offset % store.segment_bytes == 0, "only a blank record"
        found |= {record.log_offset: record.raw for record in records}
        offset = read.next_offset
    return found


@pytest.mark.parametrize("bytes_max", [1, 3_000, 1 << 20])
async def test_the_feed_is_the_same_after_the_segments_are_deleted_here(
    store: MessageStore, tiering: Tiering, bytes_max: int
) -> None:
    before = await fed(store)
    await brought_up(tiering)

    await delete_local(store, tiering)

    assert store.log_min_offset > 0
    assert store.whole_log.begin_offset == 0
    assert await fed(store, bytes_max=bytes_max) == before
    assert tiering.reader.read_count > 0


async def test_a_cache_of_a_few_chunks_is_enough_for_the_feed(
    store: MessageStore, clock: ManualClock, repository: FaultyRepository
) -> None:
    before = await fed(store)
    tiering = await tiered(store, clock, repository, cache_bytes_max=40_000)

    assert await fed(store, bytes_max=1 << 20) == before
    await tiering.close()


async def test_a_record_larger_than_the_chunks_of_one_read_is_sent_whole(
    store: MessageStore, tiering: Tiering, clock: ManualClock
) -> None:
    await store.append(batch("orders", 0, [b"x" * 20_000]))
    await fill(store, clock, 2)
    before = await fed(store)
    await brought_up(tiering)
    await delete_local(store, tiering)

    assert max(map(len, before.values())) > 4 * SETTINGS.chunk_size
    assert await fed(store, bytes_max=1) == before


async def test_single_records_are_read_from_the_tier(store: MessageStore, tiering: Tiering) -> None:
    before = await fed(store)
    await brought_up(tiering)
    await delete_local(store, tiering)
    log = store.whole_log

    for log_offset, raw in before.items():
        assert bytes(await store.cold.read("reader", partial(log.raw, log_offset))) == raw
        record = await store.cold.read("reader", partial(log.record, log_offset))
        assert record.log_offset == log_offset
    for elsewhere in (1, store.segment_bytes - 9, store.segment_bytes - 1):
        for read in (log.raw, log.record):
            with pytest.raises(RecordNotFoundError, match="no record starts"):
                await store.cold.read("reader", partial(read, elsewhere))
    with pytest.raises(RecordNotFoundError, match="no record starts"):
        await store.cold.read("reader", partial(log.read, 1, 1_000))


async def test_an_offset_that_has_expired_is_not_found_and_the_error_names_the_beginning(
    store: MessageStore, clock: ManualClock, repository: FaultyRepository
) -> None:
    tiering = await tiered(store, clock, repository, keep_hours=1)
    clock.advance(7_200)
    await store.append(batch("orders", 0, [b"much later"]))
    await tiering.step()
    assert tiering.manifest is not None

    begin = store.whole_log.begin_offset
    assert begin is not None
    assert begin == tiering.manifest.min_offset
    assert 0 < begin < store.log_min_offset
    with pytest.raises(RecordNotFoundError) as refused:
        await fed(store)
    assert refused.value.fix == f"read from {begin} on"
    assert store.whole_log.epochs_at(0).last == 0
    with pytest.raises(RecordNotFoundError, match=f"holds {begin} to"):
        store.whole_log.record(0)
    await tiering.close()


async def test_a_tier_that_is_away_is_never_a_gap(
    store: MessageStore, tiering: Tiering, repository: FaultyRepository
) -> None:
    before = await fed(store)
    await brought_up(tiering)
    await delete_local(store, tiering)
    repository.fails = True

    with pytest.raises(UnavailableError) as refused:
        await fed(store)
    assert refused.value.retry_after_seconds
    begin = store.log_min_offset
    here = {offset: raw for offset, raw in before.items() if offset >= begin}
    assert await fed(store, begin) == here, "what is here does not need the tier"

    repository.fails = False
    assert await fed(store) == before


async def test_a_broker_that_does_not_know_its_tier_does_not_tell_a_beginning(
    store: MessageStore, clock: ManualClock, repository: FaultyRepository, tiering: Tiering
) -> None:
    await brought_up(tiering)
    await delete_local(store, tiering)
    await tiering.close()
    for file in (store.directory / "tier").glob("*.json"):
        file.unlink()
    repository.fails = True

    tiering = await opened_tier(store, clock, repository)

    assert store.whole_log.begin_offset is None
    for read in (partial(store.whole_log.read, 0, 1), partial(store.whole_log.record, 0)):
        with pytest.raises(UnavailableError, match="not known yet"):
            await store.cold.read("reader", read)
    assert (await fed(store, store.log_min_offset)).keys()
    repository.fails = False
    await tiering.step()
    assert store.whole_log.begin_offset == 0
    await tiering.close()


async def test_a_log_that_has_a_gap_to_its_tier_is_refused_in_the_gap(
    store: MessageStore, tiering: Tiering, clock: ManualClock
) -> None:
    """Retention has deleted segments while the setting was off."""
    await brought_up(tiering)
    await fill(store, clock, 3)
    manifest = tiering.manifest
    assert manifest is not None
    end = manifest.end_offset
    assert end is not None
    await delete_oldest_segments(store, store.segment_count - 1)
    tiering.reader.reached = store.log_min_offset

    assert store.whole_log.begin_offset == 0
    with pytest.raises(UnavailableError, match=f"lacks log offset {end}"):
        await fed(store)


async def test_a_manifest_older_than_the_log_here_does_not_tell_the_beginning(
    store: MessageStore, tiering: Tiering, clock: ManualClock
) -> None:
    await brought_up(tiering)
    await fill(store, clock, 3)
    await delete_oldest_segments(store, store.segment_count - 1)

    assert store.whole_log.begin_offset is None
    with pytest.raises(UnavailableError, match="only tells what the tier has up to"):
        await fed(store)


def began(epoch: int) -> EpochBegan:
    return EpochBegan(epoch, 1, "9f2c51d07ab3e846", f"10.0.0.{epoch}:10911", 0)


async def test_positions_in_the_tier_have_the_epochs_that_they_had_here(
    store: MessageStore, clock: ManualClock, tiering: Tiering
) -> None:
    """Epochs begin amid segments, with a segment, several in one, and none in some."""
    for epoch in (3, 4, 7, 8):
        await new_term(store, began(epoch))
        await fill(store, clock, epoch % 3)
    await new_term(store, began(9))
    await fill(store, clock, 1)
    records = await fed(store)
    table = store.state.log_epochs.table
    before = {offset: epoch_before(table, offset) for offset in records}
    assert set(before.values()) == {0, 3, 4, 7, 8, 9}
    await brought_up(tiering)
    await delete_local(store, tiering)

    feed, found, offset, epoch = (
        LogFeed(store, HeldRequests(1, clock, _examined)),
        {0: 0},
        0,
        0,
    )
    while offset < store.visible_offset:
        read = await feed.read(offset, 2_000, 0, _never, reader="reader", epoch=epoch)
        assert read is not None
        offset, epoch = read.stretch.next_offset, read.epoch
        found[offset] = epoch
    for offset, epoch in found.items():
        if offset in before:
            assert epoch == before[offset]
    assert set(found.values()) == {0, 3, 4, 7, 8, 9}
    for offset in [one for one in before if one and before[one]][::7]:
        with pytest.raises(StaleEpochError):
            await feed.read(offset, 1, 0, _never, reader="reader", epoch=before[offset] + 1)


def _examined(_position: Position) -> Examined:
    raise AssertionError("nothing is waited for")


async def _never() -> None:
    raise AssertionError("nothing is waited for")


async def test_a_start_without_the_tier_feeds_by_the_manifest_that_it_knew(
    tmp_path: Path, clock: ManualClock, repository: FaultyRepository
) -> None:
    with without_log_lines():
        store = await MessageStore.open(tmp_path / "other", small_settings(), clock)
        await fill(store, clock, 3)
        before = await fed(store)
        tiering = await tiered(store, clock, repository)
        await tiering.close()
        await store.close()
        repository.fails = True

        store = await MessageStore.open(tmp_path / "other", small_settings(), clock)
        tiering = await opened_tier(store, clock, repository)

        assert store.whole_log.begin_offset == 0
        with pytest.raises(UnavailableError):
            await fed(store)
        repository.fails = False
        assert before.items() <= (await fed(store)).items()
        await tiering.close()
        await store.close()
