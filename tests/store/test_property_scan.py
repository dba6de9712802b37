"""Reading queues with a filter over properties: nothing is missed, and the work is bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eruca.contract.properties import encode_properties
from eruca.contract.records import Record, decode_record, encode_record
from eruca.contract.wire import PullStatus
from eruca.core.filters.sql92 import compile_sql92
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.state.events import TopicPut
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.pulling import property_scan
from eruca_broker.store.pulling.queue_read import QueueRead
from support.clocks import ManualClock
from support.stores import batch, small_settings, without_log_lines

pytestmark = pytest.mark.anyio
COUNT = 40
PLENTY = 1 << 30


def priced(number: int) -> bytes:
    properties = encode_properties({"UNIQ_KEY": f"id{number}", "n": str(number)})
    body = b"x" * (1 + 97 * number % 900)
    return encode_record(Record(topic="orders", body=body, properties=properties))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    """Numbered messages; another queue's lie between them in the log, and segments end."""
    with without_log_lines():
        store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
        await store.change(TopicPut("orders", 2, 2, "rw"))
        for number in range(COUNT):
            await store.append(batch_of_records("orders", 0, [priced(number)]))
            if number % 3 == 0:
                await store.append(batch("orders", 1, [b"between"]))
        yield store
        await store.close()


def numbers(read: QueueRead) -> list[int]:
    found, content = [], memoryview(b"".join(read.slices))
    while content:
        record = decode_record(content)
        found.append(record.queue_offset)
        content = content[record.size :]
    assert len(found) == read.count
    assert read.size == sum(len(piece) for piece in read.slices)
    return found


def read(  # as a pull of queue 0 does
    store: MessageStore,
    condition: str,
    offset: int = 0,
    *,
    count_max: int = COUNT,
    bytes_max: int = PLENTY,
    scan_work_max: int = PLENTY,
) -> QueueRead:
    return store.queues.read(
        "orders",
        0,
        offset,
        count_max=count_max,
        bytes_max=bytes_max,
        sql92=compile_sql92(condition),
        scan_work_max=scan_work_max,
    )


@given(
    low=st.integers(-1, COUNT),
    size=st.integers(0, COUNT),
    count_max=st.integers(1, COUNT),
    bytes_max=st.sampled_from([1, 500, 2_000, 1 << 30]),
    scan_work_max=st.sampled_from([0, 1, 5_000, 1 << 30]),
)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_pulling_on_finds_every_match_once_whatever_the_limits(
    store: MessageStore, *, low: int, size: int, count_max: int, bytes_max: int, scan_work_max: int
) -> None:
    condition = f"n BETWEEN {low} AND {low + size}".replace("-1 ", "- 1 ")
    found: list[int] = []
    offset = 0
    while offset < COUNT:
        pulled = read(
            store,
            condition,
            offset,
            count_max=count_max,
            bytes_max=bytes_max,
            scan_work_max=scan_work_max,
        )
        assert pulled.next_offset > offset
        assert (pulled.status is PullStatus.FOUND) is (pulled.count > 0)
        assert pulled.count <= count_max
        found += numbers(pulled)
        offset = pulled.next_offset

    assert found == list(range(max(low, 0), min(low + size + 1, COUNT)))


async def test_a_pull_ends_where_enough_was_found(store: MessageStore) -> None:
    first = read(store, "n IN ('3', '5', '39')", count_max=2)

    assert (numbers(first), first.next_offset) == ([3, 5], 6)


async def test_the_first_match_comes_whatever_its_size(store: MessageStore) -> None:
    first = read(store, "n > 37", bytes_max=1)

    assert (numbers(first), first.next_offset) == ([38], 39)


async def test_a_pull_that_finds_nothing_says_how_far_it_got(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eruca_broker.store.pulling.queue_reader.SCAN_RECORDS_MAX", 15)

    nothing = read(store, "n > 1000", 10)

    assert (nothing.status, nothing.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 25)
    assert (nothing.sizes, nothing.slices, nothing.max_offset) == (b"", [], COUNT)


async def test_the_stretch_that_is_looked_at_is_bounded(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = store.queues.read("orders", 0, 0, count_max=COUNT, bytes_max=PLENTY)
    monkeypatch.setattr(property_scan, "SCAN_SIZE_MAX", whole.size // 2)

    assert COUNT // 3 < read(store, "n > 1000").next_offset < COUNT * 2 // 3


async def test_a_longer_filter_is_tried_on_fewer_messages(store: MessageStore) -> None:
    short, long = (
        read(store, condition, scan_work_max=5_000).next_offset
        for condition in ("n > 1000", " OR ".join(["n > 1000"] * 4))
    )

    assert 1 < long < short < COUNT


async def test_the_work_done_is_told(store: MessageStore) -> None:
    one, all_of_them = (read(store, "n = 0", count_max=count).scan_work for count in (1, 2))

    assert 0 < one < all_of_them / (COUNT // 2)
    assert store.queues.read("orders", 0, 0, count_max=COUNT, bytes_max=PLENTY).scan_work == 0
