"""Reading queues: the loop over a few entries and numpy over many say the same."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eruca.contract.errors import UnavailableError
from eruca.contract.hashing import tags_code
from eruca_broker.core.consume_queue_entry import ENTRY_SIZE
from eruca_broker.core.state.events import TopicPut
from eruca_broker.store import pull_slices
from eruca_broker.store.message_store import MessageStore
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
async def test_few_and_many_entries_are_read_alike(
    store: MessageStore, *, offset: int, count_max: int, bytes_max: int, tags: set[str]
) -> None:
    codes = frozenset(map(tags_code, tags)) or None
    answers = []
    for few_max in (0, COUNT):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(pull_slices, "FEW_MAX", few_max)
            read = store.queues.read(
                "orders", 0, offset, count_max=count_max, bytes_max=bytes_max, tag_codes=codes
            )
        answers.append((read.status, read.next_offset, read.sizes, read.size, read.slices))

    assert answers[0] == answers[1]


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


@pytest.mark.parametrize("few_max", [0, COUNT])
@pytest.mark.parametrize("field", [(0, 8), (8, 4)], ids=["log offset", "size"])
async def test_an_entry_that_points_outside_the_log_is_told_and_the_others_can_be_read(
    store: MessageStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    field: tuple[int, int],
    few_max: int,
) -> None:
    monkeypatch.setattr(pull_slices, "FEW_MAX", few_max)
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
