"""What keeps a store in order, over a real store and a real limit for a full disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eruca.contract.errors import DiskFullError, UnavailableError
from eruca.contract.names import EVENTS_TOPIC
from eruca_broker.core.batch import batch_of_records
from eruca_broker.core.retention import RetentionRules
from eruca_broker.core.scheduled import Destination, Wait, waiting
from eruca_broker.core.topic_events import TopicDeleted, TopicPut
from eruca_broker.loops import upkeep as upkeep_loops
from eruca_broker.loops.upkeep import Upkeep
from eruca_broker.processors.timers import Timers
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.limits import file_size_limit, open_files_limit
from support.stores import batch, message, small_settings, without_log_lines
from support.waiting import until

pytestmark = pytest.mark.anyio

SEGMENT_SIZE = 24 * 1024
ALL_MAY_GO = RetentionRules(disk_high=1e-9, disk_forced=1e-9, disk_refuse=1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_what_waits_and_finds_no_room_keeps_its_segment_and_none_before_it(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    settings = small_settings(segment_size=SEGMENT_SIZE)
    store = await MessageStore.open(tmp_path, settings, clock)
    await store.change(TopicPut("orders", 1, 1, "rw"))
    wait = Wait(deliver_at_ms=clock.now_ms() + 3_600_000)
    large = bytes(range(1, 251)) * 60
    for is_waiting in (False, False, False, True, False):  # each in a segment of its own
        if is_waiting:
            raw = waiting(message("orders", 0, large), wait, Destination("orders", 0))
            await store.append(batch_of_records(*wait.place, [raw]), settings.store_host)
        else:
            await store.append(batch("orders", 0, [large]))
    [timer] = store.timers.following(None)
    upkeep = Upkeep(store, ALL_MAY_GO, carry_forward=Timers(store, clock).carry_forward)

    # So that there is no room for another segment; and pytest keeps what is logged in a file, too.
    with without_log_lines(), file_size_limit(SEGMENT_SIZE - 1):
        upkeep.start()
        await until(lambda: store.log_min_offset == 3 * SEGMENT_SIZE)
        await upkeep.stop()

    assert isinstance(store.refusal, DiskFullError)
    assert timer.id // SEGMENT_SIZE == 3
    assert store.timers.is_pending(timer)
    await store.probe_disk()
    await Timers(store, clock).carry_forward(store.log_max_offset)
    assert list(store.delete_oldest_segments(9, await store.needed_from()))
    assert len(store.timers) == 1
    await store.close()


async def test_a_disk_that_is_full_is_told_of_once_nothing_else_is_short(tmp_path: Path) -> None:
    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    await store.change(TopicPut("orders", 1, 1, "rw"))
    full = RetentionRules(disk_high=1e-9, disk_forced=1e-9, disk_refuse=1e-9)
    upkeep = Upkeep(store, full, carry_forward=Timers(store, ManualClock()).carry_forward)
    with open_files_limit(0):
        await store.append(batch("orders", 0, [b"hidden"]))  # in the log; its queue cannot be made
        await upkeep._retain()
        assert type(store.refusal) is UnavailableError
        assert "ulimit -n" in str(store.refusal.fix)

    await upkeep._retain()

    assert isinstance(store.refusal, DiskFullError)
    assert "writes are refused above" in store.refusal.detail
    await store.close()


async def test_others_have_their_turn_while_queues_forget_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_loops, "_TURN_SECONDS", 0)
    monkeypatch.setattr(upkeep_loops, "_PAUSE_BETWEEN_DELETIONS_SECONDS", 0)
    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    await store.change(TopicPut("orders", 64, 64, "rw"))
    for queue_id in range(64):
        await store.append(batch("orders", queue_id, [b"x" * 1_000]))
    await store.flush()
    upkeep = Upkeep(store, ALL_MAY_GO, carry_forward=Timers(store, ManualClock()).carry_forward)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    await upkeep._retain()
    other.cancel()

    assert store.log_min_offset > 0
    assert turns >= 64
    await store.close()


async def test_a_topic_that_is_deleted_while_queues_forget_a_segment_stays_deleted(
    tmp_path: Path,
) -> None:
    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    for topic in ("orders", "others"):
        await store.change(TopicPut(topic, 4, 4, "rw"))
        for queue_id in range(4):
            await store.append(batch(topic, queue_id, [bytes(5_000)]))
    await store.flush()

    steps = store.deletion(1, await store.needed_from())
    assert next(steps) is None
    for topic in ("orders", "others"):
        await store.change(TopicDeleted(topic))
    assert [offset for offset in steps if offset is not None] == [store.log_min_offset]

    assert store.log_min_offset > 0
    assert {topic for topic, _ in store._queues} == {EVENTS_TOPIC}
    await store.close()
