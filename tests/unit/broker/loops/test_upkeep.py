"""The upkeep of a store, over a real store and a real limit for a full disk."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from eruca.contract.errors import DiskFullError
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.log.retention import RetentionRules
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.state.topic_events import TopicPut
from eruca_broker.loops.upkeep import Upkeep
from eruca_broker.processors.timers import Timers
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.limits import file_size_limit
from support.patience import PATIENCE_SECONDS
from support.stores import batch, delete_oldest_segments, message, small_settings, without_log_lines
from support.waiting import until

pytestmark = pytest.mark.anyio

SEGMENT_SIZE = 24 * 1024
ALL_MAY_GO = RetentionRules(disk_high_ratio=1e-9, disk_forced_ratio=1e-9, disk_refuse_ratio=1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_what_waits_and_finds_no_room_keeps_its_segment_and_none_before_it(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    settings = small_settings(segment_bytes=SEGMENT_SIZE)
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
    await store.upkeep.probe_disk()
    await Timers(store, clock).carry_forward(store.log_max_offset)
    assert await delete_oldest_segments(store, 9)
    assert len(store.timers) == 1
    await store.close()


async def test_writes_are_accepted_soon_after_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eruca_broker.loops.upkeep.RETENTION_SECONDS", 3_600)
    clock = ManualClock()
    store = await MessageStore.open(tmp_path, small_settings(segment_bytes=SEGMENT_SIZE), clock)
    await store.change(TopicPut("orders", 1, 1, "rw"))
    rules = RetentionRules(disk_high_ratio=1, disk_forced_ratio=1, disk_refuse_ratio=1)
    upkeep = Upkeep(store, rules, carry_forward=Timers(store, clock).carry_forward)
    body = bytes(range(1, 251)) * 60

    with without_log_lines(), file_size_limit(SEGMENT_SIZE - 1):
        upkeep.start()
        await store.append(batch("orders", 0, [body]))
        with pytest.raises(DiskFullError):
            await store.append(batch("orders", 0, [body]))  # it needs a segment of its own
    await until(lambda: store.refusal is None)
    await store.append(batch("orders", 0, [body]))

    await upkeep.stop()
    await store.close()


async def test_who_stops_does_not_wait_until_the_next_segment_is_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk takes ten seconds and more, and by then the process is killed."""
    monkeypatch.setattr("eruca_broker.store.log.segment._CHUNK_SIZE", 1024)
    monkeypatch.setattr("eruca_broker.store.log.segment.WARM_SIZE_MAX", 1024)
    clock = ManualClock()
    settings = small_settings(segment_bytes=SEGMENT_SIZE)
    store = await MessageStore.open(tmp_path, replace(settings, is_log_warmed=True), clock)
    await store.change(TopicPut("orders", 1, 1, "rw"))
    await store.append(batch("orders", 0, [bytes(range(1, 251)) * 60]))
    await store.upkeep.flush()
    upkeep = Upkeep(store, ALL_MAY_GO, carry_forward=Timers(store, clock).carry_forward)
    fdatasync, flushed, may_go_on = os.fdatasync, list[str](), threading.Event()

    def flush(descriptor: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        assert may_go_on.wait(PATIENCE_SECONDS)
        fdatasync(descriptor)

    monkeypatch.setattr("eruca_broker.store.log.segment.os.fdatasync", flush)
    upkeep.start()
    following = f"{SEGMENT_SIZE:020d}"
    await until(lambda: following in flushed)

    stopping = asyncio.create_task(upkeep.stop())
    await asyncio.sleep(0)  # it has begun to
    may_go_on.set()
    await stopping

    assert flushed.count(following) == 1
    await store.close()


async def test_the_log_is_flushed_while_the_next_segment_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    store = await MessageStore.open(tmp_path, small_settings(segment_bytes=SEGMENT_SIZE), clock)
    upkeep = Upkeep(store, ALL_MAY_GO, carry_forward=Timers(store, clock).carry_forward)
    is_making, may_go_on = asyncio.Event(), asyncio.Event()

    async def prepare_next_segment() -> None:
        is_making.set()
        await may_go_on.wait()

    monkeypatch.setattr(store.upkeep, "prepare_next_segment", prepare_next_segment)
    upkeep.start()
    await is_making.wait()

    await store.change(TopicPut("orders", 1, 1, "rw"))

    await until(lambda: store.flushed_offset == store.log_max_offset)
    may_go_on.set()
    await upkeep.stop()
    await store.close()
