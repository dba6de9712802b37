"""Retention's rounds, over a real store: refusals, turns for others, and what changes meanwhile."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca.contract.errors import DiskFullError, UnavailableError
from eruca.contract.names import EVENTS_TOPIC
from eruca_broker.core.log.retention import RetentionRules
from eruca_broker.core.state.topic_events import TopicDeleted, TopicPut
from eruca_broker.loops import retention
from eruca_broker.loops.retention import RetentionLoop
from eruca_broker.processors.groups.lags import GroupLags
from eruca_broker.processors.timers import Timers
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.limits import open_files_limit
from support.stores import batch, small_settings

pytestmark = pytest.mark.anyio

ALL_MAY_GO = RetentionRules(disk_high_ratio=1e-9, disk_forced_ratio=1e-9, disk_refuse_ratio=1)
OLD_MAY_GO = RetentionRules(
    reserved_hours=0, disk_high_ratio=1e-9, disk_forced_ratio=1, disk_refuse_ratio=1
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def loop_of(
    store: MessageStore,
    rules: RetentionRules,
    *,
    kept_from: int | None = None,
    tiered_to: int | None = None,
) -> RetentionLoop:
    carry_forward = Timers(store, ManualClock()).carry_forward
    lags = GroupLags(store)
    return RetentionLoop(
        *(store, rules, carry_forward, lags),
        kept_from=lambda: kept_from,
        tiered_to=lambda: tiered_to,
    )


async def test_a_disk_that_is_full_is_told_of_once_nothing_else_is_short(tmp_path: Path) -> None:
    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    await store.change(TopicPut("orders", 1, 1, "rw"))
    full = RetentionRules(disk_high_ratio=1e-9, disk_forced_ratio=1e-9, disk_refuse_ratio=1e-9)
    loop = loop_of(store, full)
    with open_files_limit(0):
        await store.append(batch("orders", 0, [b"hidden"]))  # in the log; its queue cannot be made
        await loop.step()
        assert type(store.refusal) is UnavailableError
        assert "ulimit -n" in str(store.refusal.fix)

    await loop.step()

    assert isinstance(store.refusal, DiskFullError)
    assert "writes are refused above" in store.refusal.detail
    await store.close()


async def test_others_have_their_turn_while_queues_forget_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_TURN_SECONDS", 0)
    monkeypatch.setattr(retention, "_PAUSE_BETWEEN_DELETIONS_SECONDS", 0)
    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    await store.change(TopicPut("orders", 64, 64, "rw"))
    for queue_id in range(64):
        await store.append(batch("orders", queue_id, [b"x" * 1_000]))
    await store.upkeep.flush()
    loop = loop_of(store, ALL_MAY_GO)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    await loop.step()
    other.cancel()

    assert store.log_min_offset > 0
    assert turns >= 64
    await store.close()


async def test_a_damaged_queue_keeps_no_segment_from_being_deleted(tmp_path: Path) -> None:
    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    await store.change(TopicPut("orders", 2, 2, "rw"))
    for _ in range(30):
        for queue_id in range(2):
            await store.append(batch("orders", queue_id, [bytes(2_000)]))
    await store.upkeep.flush()
    for file in (tmp_path / "consumequeue" / "orders" / "0").iterdir():
        os.truncate(file, 0)

    await loop_of(store, ALL_MAY_GO).step()

    assert store.log_min_offset > 0
    assert store.queues.range("orders", 1)[0] > 0
    queues, *_ = store.projections()
    assert "consume queue 0 of 'orders' is damaged" in (queues.failure or "")
    await store.close()

    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    first, end = store.queues.range("orders", 0)
    assert (first > 0, end) == (True, 30)
    assert (
        store.queues.read("orders", 0, first, count_max=30, bytes_max=1 << 20).count == end - first
    )
    assert [projection.failure for projection in store.projections()] == [None] * 3
    await store.close()


async def test_a_topic_that_is_deleted_while_queues_forget_a_segment_stays_deleted(
    tmp_path: Path,
) -> None:
    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    for topic in ("orders", "others"):
        await store.change(TopicPut(topic, 4, 4, "rw"))
        for queue_id in range(4):
            await store.append(batch(topic, queue_id, [bytes(5_000)]))
    await store.upkeep.flush()

    steps = store.retention.deletion(1, await store.retention.needed_from())
    assert next(steps) is None
    for topic in ("orders", "others"):
        await store.change(TopicDeleted(topic))
    assert [offset for offset in steps if offset is not None] == [store.log_min_offset]

    assert store.log_min_offset > 0
    assert {topic for topic, _ in store._consume_queues} == {EVENTS_TOPIC}
    await store.close()


async def test_segments_that_a_replica_needs_stay_unless_the_disk_is_too_full(
    tmp_path: Path,
) -> None:
    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    await store.change(TopicPut("orders", 1, 1, "rw"))
    for _ in range(30):
        await store.append(batch("orders", 0, [bytes(4_000)]))
    await store.upkeep.flush()
    first, second, third = store.retention.segment_ends()[:3]

    await loop_of(store, OLD_MAY_GO, kept_from=0).step()
    assert store.log_min_offset == 0

    await loop_of(store, OLD_MAY_GO, kept_from=third - 1).step()
    assert store.log_min_offset == second > first

    await loop_of(store, ALL_MAY_GO, kept_from=second).step()
    assert store.log_min_offset > second
    await store.close()


async def test_what_the_tier_lacks_stays_however_full_the_disk_is(tmp_path: Path) -> None:
    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    await store.change(TopicPut("orders", 1, 1, "rw"))
    for _ in range(30):
        await store.append(batch("orders", 0, [bytes(4_000)]))
    await store.upkeep.flush()
    first, second, third = store.retention.segment_ends()[:3]

    await loop_of(store, ALL_MAY_GO, tiered_to=first - 1).step()
    assert store.log_min_offset == 0

    await loop_of(store, ALL_MAY_GO, tiered_to=second).step()
    assert store.log_min_offset == first, "a replica that comes from the tier proves itself by it"

    await loop_of(store, ALL_MAY_GO, tiered_to=third - 1).step()
    assert store.log_min_offset == second
    await store.close()


@pytest.mark.parametrize("is_whole", [True, False], ids=["has all", "lacks one"])
async def test_segments_are_said_to_wait_for_the_tier_only_if_it_lacks_them(
    tmp_path: Path, *, is_whole: bool
) -> None:
    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    await store.change(TopicPut("orders", 1, 1, "rw"))
    for _ in range(30):
        await store.append(batch("orders", 0, [bytes(4_000)]))
    await store.upkeep.flush()
    *_, before, last, _ = store.retention.segment_ends()  # the open one waits for nobody

    with capture_logs() as logs:
        await loop_of(store, ALL_MAY_GO, tiered_to=last if is_whole else before).step()

    waiting = [(one["count"], one["tiered_to"]) for one in logs if "until the tier" in one["event"]]
    assert waiting == ([] if is_whole else [(1, before)])
    await store.close()
