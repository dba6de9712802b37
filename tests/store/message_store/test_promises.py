"""The message store: what is promised of a message, and when."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from eruca.contract.errors import DiskFullError, RecordNotFoundError
from eruca.contract.names import EVENTS_TOPIC
from eruca_broker.core.batches.batch import Batch
from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted, TopicDeleted, TopicPut
from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.log.receipts import Receipt
from eruca_broker.store.log.segment import Segment
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.clocks import ManualClock
from support.limits import file_size_limit
from support.log_model import LogModel, read_log
from support.message_stores import BOTH_MODES, ORDERS, Flushes, bodies, log_of, opened, send
from support.stores import batch, small_settings
from support.waiting import until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("mode", "durability"), [(FlushMode.SYNC, "flushed"), (FlushMode.ASYNC, "written")]
)
async def test_a_receipt_says_where_the_messages_are_and_how_safe(
    store: MessageStore, tmp_path: Path, durability: str
) -> None:
    end = store.log_max_offset

    receipt = await send(store, b"one", b"two")

    assert receipt == Receipt(0, end, ManualClock().now_ms(), durability)
    assert log_of(tmp_path) == bodies(store) == [b"one", b"two"]
    assert (store.flushed_offset == store.log_max_offset) is (durability == "flushed")


@BOTH_MODES
async def test_messages_of_one_tick_follow_each_other_in_the_order_they_were_given(
    store: MessageStore,
) -> None:
    receipts = await asyncio.gather(*(send(store, b"%d" % n, queue_id=n % 2) for n in range(100)))

    assert [receipt.queue_offset for receipt in receipts] == [n // 2 for n in range(100)]
    assert bodies(store, 1) == [b"%d" % n for n in range(1, 100, 2)]


@pytest.mark.parametrize("mode", [FlushMode.SYNC])
async def test_with_synchronous_flush_nothing_is_seen_before_it_is_flushed(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_flushing, may_go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    real = os.fdatasync

    def flush(descriptor: int) -> None:
        loop.call_soon_threadsafe(is_flushing.set)
        asyncio.run_coroutine_threadsafe(may_go_on.wait(), loop).result(20)
        real(descriptor)

    monkeypatch.setattr("eruca_broker.store.log.segment.os.fdatasync", flush)
    before, end = store.visible_offset, store.log_max_offset
    sending = asyncio.ensure_future(send(store, b"one"))
    await is_flushing.wait()

    assert store.log_max_offset > end  # the kernel has it
    assert store.visible_offset == before
    assert store.queues.range("orders", 0) == (0, 0)
    assert len(store.log.read(0, 1 << 20).records) == before
    with pytest.raises(RecordNotFoundError):
        store.log.record(end)

    may_go_on.set()
    assert (await sending).log_offset == end
    assert store.log.record(end).body == b"one"


@pytest.mark.parametrize("mode", [FlushMode.SYNC])
async def test_what_comes_during_a_flush_is_written_once_at_its_end(
    store: MessageStore, flushes: Flushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    pwritev = os.pwritev

    def write(descriptor: int, buffers: Sequence[memoryview], position: int) -> int:
        writes.append(len(buffers))
        return pwritev(descriptor, buffers, position)

    monkeypatch.setattr("eruca_broker.store.log.segment.os.pwritev", write)
    flushes.may_end.clear()
    sending = [asyncio.create_task(send(store, b"first"))]
    await until(lambda: writes == [1, 1])  # the rest, then its first bytes
    for number in range(5):  # each in a tick of its own
        sending.append(asyncio.create_task(send(store, b"%d" % number)))
        await asyncio.wait(sending, timeout=0.01)
    assert writes == [1, 1]

    flushes.may_end.set()
    receipts = await asyncio.gather(*sending)

    assert writes == [1, 1, 5, 1]
    assert [receipt.queue_offset for receipt in receipts] == list(range(6))
    assert bodies(store) == [b"first", *(b"%d" % number for number in range(5))]


async def test_writes_are_accepted_again_before_the_next_segment_is_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed: list[str] = []
    store = await opened(tmp_path, replace(small_settings(), is_log_warmed=True))
    await store.change(ORDERS)
    monkeypatch.setattr(Segment, "warm", lambda segment: warmed.append(segment.path.name))
    store.refusal = DiskFullError("the disk is full")

    await store.upkeep.probe_disk()

    assert store.refusal is None
    assert not warmed
    await send(store, bytes(range(1, 251)) * 60)
    await store.upkeep.prepare_next_segment()
    assert warmed == [f"{store.segment_bytes:020d}"]
    await store.close()


async def test_a_checkpoint_promises_nothing_of_what_comes_while_the_log_is_flushed(
    tmp_path: Path, flushes: Flushes
) -> None:
    clock = ManualClock()
    store = await MessageStore.open(tmp_path, small_settings(), clock)
    await store.change(ORDERS)
    await store.upkeep.checkpoint()
    clock.advance(1)
    before = await send(store, b"before")
    earlier = flushes.count
    flushes.may_end.clear()
    checking = asyncio.ensure_future(store.upkeep.checkpoint())
    await until(lambda: flushes.count > earlier)
    clock.advance(1)
    meanwhile = await send(store, b"meanwhile")
    flushes.may_end.set()
    await checking

    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.flushed_offset == checkpoint.projected_offset == meanwhile.log_offset
    stored_at = before.store_timestamp
    assert checkpoint.log_timestamp == checkpoint.queues_timestamp == stored_at
    await store.close()
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.log_timestamp == meanwhile.store_timestamp


@pytest.mark.parametrize("mode", [FlushMode.ASYNC])
async def test_a_flush_ends_with_what_was_written_before_it_however_much_comes_meanwhile(
    store: MessageStore, flushes: Flushes
) -> None:
    """Or under steady load each would begin the next at once, and the disk would never rest."""
    earlier = flushes.count
    before = (await send(store, b"before")).log_offset
    flushes.may_end.clear()
    flushing = asyncio.ensure_future(store.upkeep.flush())
    await until(lambda: flushes.count == earlier + 1)
    meanwhile = (await send(store, b"meanwhile")).log_offset

    flushes.may_end.set()
    await flushing

    assert flushes.count == earlier + 1
    assert before < store.flushed_offset == meanwhile
    await store.close()
    assert store.flushed_offset == store.log_max_offset > meanwhile


@pytest.mark.parametrize("mode", [FlushMode.SYNC])
async def test_all_who_wait_are_served_by_one_flush(store: MessageStore, flushes: Flushes) -> None:
    await asyncio.gather(*(send(store, b"x") for _ in range(100)))

    assert flushes.count <= 2


@BOTH_MODES
@pytest.mark.parametrize("limit", [None, 0])
async def test_nothing_of_a_group_is_kept_once_its_sender_knows(
    store: MessageStore, limit: int | None
) -> None:
    """It is not left to the garbage collector, which comes late to what is large."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        with file_size_limit(limit) if limit is not None else nullcontext():
            batches = [batch("orders", queue_id, [b"large"]) for queue_id in (0, 1)]
            appended = store.append_group(batches)
            await asyncio.wait([appended])
        assert (appended.exception() is None) is (limit is None)
        del batches, appended

        gc.collect()
        assert [left for left in gc.garbage if isinstance(left, Appended | Batch)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@BOTH_MODES
async def test_store_times_never_go_backwards_even_when_the_clock_does(
    tmp_path: Path, mode: FlushMode
) -> None:
    settings, clock = small_settings(flush_mode=mode), ManualClock()
    store = await MessageStore.open(tmp_path, settings, clock)
    await store.change(ORDERS)
    first = await send(store, b"one")
    clock.advance(-1_000)
    second = await send(store, b"two")
    await store.close()
    store = await MessageStore.open(tmp_path, settings, clock)

    third = await send(store, b"three")

    assert first.store_timestamp == second.store_timestamp == third.store_timestamp
    await store.close()


@BOTH_MODES
async def test_what_is_on_its_way_into_the_state_is_in_the_snapshot_behind_it(
    store: MessageStore, tmp_path: Path
) -> None:
    """A roll in the same tick; :class:`LogModel` compares each snapshot with what precedes it."""
    await store.change(TopicPut("passing", 1, 1, "rw"))
    await store.append(batch("passing", 0, [b"x"]))
    await store.change(OffsetsCommitted("g", [CommittedOffset("passing", 0, 1)]))

    await asyncio.gather(
        store.change(TopicPut("late", 2, 2, "rw")),
        store.change(OffsetsCommitted("g", [CommittedOffset("orders", 1, 7)])),
        store.change(TopicDeleted("passing")),
        *(send(store, b"y" * 700) for _ in range(40)),
    )

    assert store.segment_count > 1
    assert LogModel(read_log(tmp_path)).topics.keys() == {"orders", "late"}
    assert store.state.topics.keys() == {"orders", "late", EVENTS_TOPIC}
    assert store.state.committed_offset("g", "orders", 1) == 7
    assert store.state.committed_offset("g", "passing", 0) is None
