"""Reading queues: a loop, numpy and copies of what lies apart give the same answers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eruca.contract.errors import UnavailableError
from eruca.contract.hashing import tags_code
from eruca.contract.wire import PullStatus
from eruca_broker.core.consume_queue_entry import ENTRY_SIZE
from eruca_broker.core.state.events import TopicPut
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.pulling import pull_slices
from eruca_broker.store.pulling.pull_slices import FEW_MAX
from support.clocks import ManualClock
from support.stores import batch, small_settings, without_log_lines

pytestmark = pytest.mark.anyio
TAGS = (None, "red", "blue")
COUNT = 40


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    """Two queues take turns, so that neighbours in a queue are not always neighbours in the log."""
    with without_log_lines():
        store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
        await store.change(TopicPut("orders", 2, 2, "rw"))
        for number in range(COUNT):
            tag = TAGS[number * number % len(TAGS)]
            await store.append(batch("orders", 0, [b"x" * (1 + 97 * number % 900)], tag=tag))
            if number % 3 == 0:
                await store.append(batch("orders", 1, [b"between"]))
        yield store
        await store.close()


@given(
    offset=st.integers(0, COUNT),
    count_max=st.integers(1, COUNT + 5),
    bytes_max=st.sampled_from([1, 500, 2_000, 10_000, 1 << 30]),
    tags=st.sets(st.sampled_from(["red", "blue", "green"])),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_few_and_many_entries_and_copies_are_read_alike(
    store: MessageStore, *, offset: int, count_max: int, bytes_max: int, tags: set[str]
) -> None:
    codes = frozenset(map(tags_code, tags)) or None
    answers = []
    for few_max in (0, COUNT):
        for gathered_min in (2, COUNT):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(pull_slices, "FEW_MAX", few_max)
                patched.setattr(pull_slices, "GATHERED_MIN", gathered_min)
                read = store.queues.read(
                    "orders", 0, offset, count_max=count_max, bytes_max=bytes_max, tag_codes=codes
                )
            records = b"".join(read.slices)
            assert read.copied_size in {0, len(records)}
            answers.append((read.status, read.next_offset, read.sizes, read.size, records))

    assert answers == answers[:1] * 4


@pytest.fixture
async def mixed(tmp_path: Path) -> AsyncIterator[MessageStore]:
    """Two queues that take turns, in one segment: every message lies apart from its neighbours."""
    with without_log_lines():
        settings = small_settings(segment_bytes=1024 * 1024)
        store = await MessageStore.open(tmp_path, settings, ManualClock())
        await store.change(TopicPut("orders", 2, 2, "rw"))
        for number in range(COUNT):
            for queue_id in range(2):
                await store.append(batch("orders", queue_id, [b"%d" % number]))
        yield store
        await store.close()


@pytest.mark.parametrize("count", [FEW_MAX, COUNT], ids=["few", "many"])
async def test_small_messages_that_lie_apart_are_answered_as_one_copy(
    mixed: MessageStore, count: int
) -> None:
    read = mixed.queues.read("orders", 1, 0, count_max=count, bytes_max=1 << 20)

    assert [record.body for record in read.records()] == [b"%d" % one for one in range(count)]
    assert (len(read.slices), read.copied_size) == (1, read.size)


async def test_large_messages_that_lie_apart_stay_in_the_log(mixed: MessageStore) -> None:
    body = b"x" * (2 * pull_slices.GATHERED_SIZE_MAX)
    for _ in range(pull_slices.GATHERED_MIN):
        for queue_id in range(2):
            await mixed.append(batch("orders", queue_id, [body]))

    read = mixed.queues.read("orders", 1, COUNT, count_max=COUNT, bytes_max=1 << 30)

    assert [record.body for record in read.records()] == [body] * pull_slices.GATHERED_MIN
    assert (len(read.slices), read.copied_size) == (pull_slices.GATHERED_MIN, 0)


@pytest.mark.parametrize("count", [FEW_MAX, COUNT], ids=["few", "many"])
@pytest.mark.parametrize("row", [0, 5])
async def test_copies_end_before_a_damaged_message(
    mixed: MessageStore, tmp_path: Path, row: int, count: int
) -> None:
    place = mixed.places.log_offset_of("orders", 1, row)
    [segment] = (tmp_path / "commitlog").iterdir()
    with segment.open("r+b") as log:
        log.seek(place + 100)
        [byte] = log.read(1)
        log.seek(place + 100)
        log.write(bytes([byte ^ 1]))

    read = mixed.queues.read("orders", 1, 0, count_max=count, bytes_max=1 << 20)

    if row:
        assert (read.status, read.count) == (PullStatus.FOUND, row)
        read = mixed.queues.read("orders", 1, row, count_max=count, bytes_max=1 << 20)
    assert read.status is PullStatus.DAMAGED
    assert read.damage is not None
    assert (read.damage.queue_offset, read.damage.log_offset) == (row, place)


async def test_where_the_key_index_cannot_be_read_nobody_is_told_that_a_key_is_unknown(
    store: MessageStore, tmp_path: Path
) -> None:
    for number in range(100):  # more than one file of the index holds
        await store.append(batch("orders", 0, [b"%d" % number], keys="k"))

    def found() -> int:
        return len(store.log.by_key("orders", "k", count_max=1_000, begin_ms=0, end_ms=2**62))

    assert found() == 100
    os.truncate(min((tmp_path / "index").iterdir()), 1_000)

    with pytest.raises(UnavailableError, match="the key index cannot be read"):
        found()


@pytest.mark.parametrize("gathered_min", [2, COUNT])
@pytest.mark.parametrize("few_max", [0, COUNT])
@pytest.mark.parametrize("field", [(0, 8), (8, 4)], ids=["log offset", "size"])
async def test_an_entry_that_points_outside_the_log_is_told_and_the_others_can_be_read(
    store: MessageStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    field: tuple[int, int],
    few_max: int,
    gathered_min: int,
) -> None:
    monkeypatch.setattr(pull_slices, "FEW_MAX", few_max)
    monkeypatch.setattr(pull_slices, "GATHERED_MIN", gathered_min)
    position, size = field
    file = min((tmp_path / "consumequeue" / "orders" / "0").iterdir())
    with file.open("r+b") as entries:
        entries.seek(3 * ENTRY_SIZE + position)
        entries.write(b"\x01".ljust(size, b"\0"))

    with pytest.raises(UnavailableError, match="the consume queue 0 of 'orders' is damaged"):
        store.queues.read("orders", 0, 0, count_max=COUNT, bytes_max=1 << 30)

    assert store.queues.read("orders", 0, 4, count_max=COUNT, bytes_max=1 << 30).count == COUNT - 4
    assert store.queues.read("orders", 1, 0, count_max=COUNT, bytes_max=1 << 30).count > 0


@pytest.mark.parametrize("is_known", [False, True], ids=["written to", "known by its digest"])
async def test_a_queue_that_was_found_damaged_is_named_and_rebuilt_by_the_next_start(
    tmp_path: Path,
    is_known: bool,
) -> None:
    with without_log_lines():
        store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
        await store.change(TopicPut("orders", 1, 1, "rw"))
        await store.append(batch("orders", 0, [b"a", b"b"]))
        if is_known:
            await store.close()
            store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
        file = min((tmp_path / "consumequeue" / "orders" / "0").iterdir())
        with file.open("r+b") as entries:
            entries.write(b"\x01")
        with pytest.raises(UnavailableError, match="invalid entry"):
            store.queues.read("orders", 0, 0, count_max=COUNT, bytes_max=1 << 30)
        queues, *_ = store.projections()
        assert "consume queue 0 of 'orders' is damaged" in (queues.failure or "")
        await store.close()

        store = await MessageStore.open(tmp_path, small_settings(), ManualClock())

        assert store.queues.read("orders", 0, 0, count_max=COUNT, bytes_max=1 << 30).count == 2
        assert [p.failure for p in store.projections()] == [None] * 3
        await store.close()
