"""Look-ups by key in the tier: all of them, page by page, and never a key that seems missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import UnavailableError
from eruca.contract.hashing import key_hash
from eruca_broker.core.state.events import TopicDeleted, TopicPut
from eruca_broker.core.tier import queue_tables
from eruca_broker.core.tier.queue_tables import (
    Head,
    QueueTable,
    decoded,
    fences_of,
    key_rows,
    places_with,
)
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.reading import tiered_keys
from eruca_broker.store.reading.tiered_keys import FoundByKey
from eruca_broker.store.tier import sides
from eruca_broker.store.tiering.tiering import Tiering
from support.clocks import ManualClock
from support.stores import batch
from support.tiers import FaultyRepository, brought_up, delete_local, opened_tier

pytestmark = pytest.mark.anyio
ALWAYS = {"begin_ms": 0, "end_ms": 2**62}
KEYS = ("all", "k0", "k1", "id-3", "once", "none")


@pytest.fixture
async def tiering(
    store: MessageStore, clock: ManualClock, repository: FaultyRepository
) -> AsyncIterator[Tiering]:
    """Yield the tier of a store with keys in each of some segments."""
    await fill_with_keys(store, clock)
    tiering = await opened_tier(store, clock, repository, cache_bytes_max=100_000)
    yield tiering
    await tiering.close()


async def fill_with_keys(store: MessageStore, clock: ManualClock) -> None:
    end = store.segment_count + 12
    number = 0
    while store.segment_count < end:
        clock.advance(1.0)
        keys = f"all k{number % 2}" + (" once" if number == 1 else "")
        body = b"%d" % number + bytes(1_500)
        await store.append(
            batch("orders", number % 3, [body], keys=keys, unique_key=f"id-{number}")
        )
        number += 1
    await store.upkeep.flush()


async def find(store: MessageStore, key: str, **times: int) -> list[int]:
    """Return the log offsets of all messages with *key*, page after page."""
    return [one for page in await pages(store, key, **times) for one in page]


async def pages(store: MessageStore, key: str, **times: int) -> list[list[int]]:
    found: list[list[int]] = []
    count = 5
    before: int | None = None
    while True:
        page = await page_of(store, key, count, before, **times)
        assert not page.damaged
        assert not page.without_keys
        offsets = [record.log_offset for record in page.records]
        found.append(offsets[: count - 1])
        if len(offsets) == count:
            before = offsets[-2]
        elif page.rest is not None:
            assert before is None or page.rest < before, "a reader would stay where it is"
            before = page.rest
        else:
            return found


async def page_of(
    store: MessageStore, key: str, count: int, before: int | None, **times: int
) -> FoundByKey:
    look = partial(store.keys.find, "orders", key, count_max=count, before_offset=before)
    return await store.cold.read("reader", partial(look, **(ALWAYS | times)))


async def test_each_key_is_found_as_before_the_segments_are_deleted_here(
    store: MessageStore, clock: ManualClock, tiering: Tiering
) -> None:
    now = clock.now_ms()
    ranges: list[dict[str, int]] = [
        {},
        {"begin_ms": now - 9_000},
        {"end_ms": now - 9_000},
        {"end_ms": 5},
    ]
    ranges.append({"begin_ms": now - 30_000, "end_ms": now - 20_000})
    asked = [(key, times) for key in KEYS for times in ranges]
    before = [await find(store, key, **times) for key, times in asked]
    assert len(before[0]) > 100
    await brought_up(tiering)

    await delete_local(store, tiering)

    assert [await find(store, key, **times) for key, times in asked] == before
    assert len(await find(store, "once")) == 1


async def test_a_page_looks_into_a_bounded_part_of_the_tier(
    store: MessageStore, tiering: Tiering, monkeypatch: pytest.MonkeyPatch
) -> None:
    await brought_up(tiering)
    await delete_local(store, tiering)
    monkeypatch.setattr(tiered_keys, "SEGMENTS_MAX", 2)

    listed = await pages(store, "once")

    assert [len(page) for page in listed if page] == [1]
    assert len(listed) > 5, "pages without a message end, too"
    recent = await pages(store, "all", begin_ms=store.last_store_timestamp)
    assert len(recent) == 1, "no page of the tier for what was stored later"


async def test_a_page_reads_few_of_the_keys_that_every_message_has(
    store: MessageStore, clock: ManualClock, tiering: Tiering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message has two keys with one hash, so the rows are twice as many as the messages."""
    assert key_hash("orders", "Aa") == key_hash("orders", "BB")
    end = store.segment_count + 3
    while store.segment_count < end:
        await store.append(batch("orders", 0, [b"x"] * 10, keys="BB Aa"))
    await store.upkeep.flush()
    before = await find(store, "Aa")
    await brought_up(tiering)
    await delete_local(store, tiering)
    monkeypatch.setattr(tiered_keys, "ROWS_MAX", 8)
    sizes, read = list[int](), tiering.reader.bytes_of

    def counted(segment: Any, table: Any, begin: int, end: int, *, is_side: bool) -> bytes:  # noqa: ANN401
        sizes.append(end - begin if is_side else 0)
        return read(segment, table, begin, end, is_side=is_side)

    find_page = store.keys.find

    def attempted(*args: Any, **more: Any) -> FoundByKey:  # noqa: ANN401
        sizes.clear()
        return find_page(*args, **more)

    monkeypatch.setattr(tiering.reader, "bytes_of", counted)
    monkeypatch.setattr(store.keys, "find", attempted)
    rest = store.log_min_offset
    found = [one for one in before if one >= rest]
    assert len(before) - len(found) > 200
    while True:
        page = await page_of(store, "Aa", 99, rest)
        assert sum(sizes) < 1_000, "bytes of keys"
        found += [record.log_offset for record in page.records]
        assert len(page.records) <= 8
        if page.rest is None:
            break
        assert page.rest < rest
        rest = page.rest

    assert found == before
    assert await find(store, "none") == []


async def test_a_key_of_a_deleted_topic_is_not_its_successors(
    store: MessageStore, clock: ManualClock, tiering: Tiering
) -> None:
    await store.change(TopicDeleted("orders"))
    await store.change(TopicPut("orders", 3, 3, "rw"))
    await fill_with_keys(store, clock)
    before = await find(store, "all")
    await brought_up(tiering)
    await delete_local(store, tiering)

    assert await find(store, "all") == before != []


async def test_a_tier_that_is_away_refuses_its_pages_and_no_others(
    store: MessageStore, tiering: Tiering, repository: FaultyRepository
) -> None:
    await brought_up(tiering)
    before = await find(store, "all")
    await delete_local(store, tiering)
    repository.fails = True

    first = await page_of(store, "all", 1_000, None)

    assert first.rest == store.log_min_offset
    assert [one.log_offset for one in first.records] == [
        offset for offset in before if offset >= store.log_min_offset
    ]
    with pytest.raises(UnavailableError):
        await find(store, "all")
    tiering.reader.manifest = None
    assert (await page_of(store, "all", 9, None)).rest == store.log_min_offset
    with pytest.raises(UnavailableError, match="not known yet"):
        await find(store, "all")


@pytest.mark.parametrize("is_old", [False, True])
async def test_segments_without_keys_are_named(
    store: MessageStore,
    tiering: Tiering,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_old: bool,
) -> None:
    """A version without keys has uploaded them, or they have too many keys."""
    monkeypatch.setattr(sides, "KEYS_MAX", 0)
    if is_old:
        monkeypatch.setattr(queue_tables, "FORMAT", 1)
    await brought_up(tiering)
    await delete_local(store, tiering)

    page = await page_of(store, "all", 9, store.log_min_offset)

    assert page.without_keys
    assert page.records == []
    assert page.rest is not None
    assert len(await _bodies(store)) > 20, "the rest of them is read as before"


async def _bodies(store: MessageStore) -> list[bytes]:
    found, offset = list[bytes](), 0
    while offset < store.queues.range("orders", 0)[1]:
        look = partial(store.queues.read, "orders", 0, offset, count_max=99, bytes_max=1 << 20)
        read = await store.cold.read("reader", look)
        found += [record.body for record in read.records()]
        offset = read.next_offset
    return found


@given(
    hashes=st.lists(st.sampled_from([-(2**31), -2, -1, 0, 1, 7, 8, 2**31 - 1]), max_size=60),
    wanted=st.sampled_from([-(2**31), -1, 0, 7, 9, 2**31 - 1]),
)
def test_fences_lead_to_all_keys_with_a_hash(hashes: list[int], wanted: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_tables, "FENCE_ROWS", 4)
        places = np.arange(len(hashes), dtype=np.int64) * 300
        rows = key_rows(np.array(hashes, np.int32), places)
        rows.sort()
        table = QueueTable(
            Head(
                format=2,
                base=0,
                size=1,
                chunk_size=1 << 20,
                entry_count=0,
                segment_digests=bytes(32),
                side_digests=bytes(32 if hashes else 0),
                topics=[],
                runs=b"",
                key_count=len(hashes),
                key_fences=fences_of(rows),
            )
        )
        first, last = table.keys_near(wanted)

        expected = [300 * place for place, one in enumerate(hashes) if one == wanted]
        assert places_with(rows[first:last], wanted) == expected[::-1]


def test_a_head_whose_fences_are_not_its_keys_is_invalid() -> None:
    head = Head(
        format=2,
        base=0,
        size=1,
        chunk_size=8,
        entry_count=0,
        segment_digests=bytes(32),
        side_digests=bytes(32),
        topics=[],
        runs=b"",
        key_count=1,
    )
    with pytest.raises(queue_tables.InvalidHeadError, match="fences"):
        decoded(msgspec.msgpack.encode(head))
