"""The message store: what is promised when, and what becomes of promises when the disk says no."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import Mock

import pytest
import structlog
from structlog.testing import capture_logs

from eruca.contract.errors import (
    DiskFullError,
    NotReadyError,
    RecordNotFoundError,
    StoreFailedError,
    TooLargeError,
    TopicNotFoundError,
    UnavailableError,
)
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import Record, decode_record
from eruca.contract.wire import PullStatus
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted, TopicDeleted, TopicPut
from eruca_broker.core.state.group_events import GroupSubscribed, Subscribed
from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_broker.store.files.directory_lock import StoreLockedError, lock_directory
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.log.receipts import Receipt
from eruca_broker.store.log.segment import Segment
from eruca_broker.store.log_reader import LogReader
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode, StoreSettings
from eruca_chassis.flushing import FlushError
from support.clocks import ManualClock
from support.disks import ForgetfulDisk
from support.limits import file_size_limit, open_files_limit
from support.log_model import LogModel, read_log
from support.patience import PATIENCE_SECONDS
from support.stores import (
    abandon,
    all_answers,
    batch,
    delete_oldest_segments,
    message,
    scratch_directory,
    small_settings,
    without_log_lines,
)
from support.waiting import until

pytestmark = pytest.mark.anyio

ORDERS = TopicPut("orders", 4, 4, "rw")
BOTH_MODES = pytest.mark.parametrize("mode", list(FlushMode))


@pytest.fixture(autouse=True)
def _without_log_lines() -> Iterator[None]:
    with without_log_lines():
        yield


async def opened(directory: Path, settings: StoreSettings | None = None) -> MessageStore:
    return await MessageStore.open(directory, settings or small_settings(), ManualClock())


async def send(store: MessageStore, *bodies: bytes, queue_id: int = 0) -> Receipt:
    return await store.append(batch("orders", queue_id, list(bodies), keys="k"))


def bodies(store: MessageStore, queue_id: int = 0) -> list[bytes]:
    """Return the bodies that a consumer of a queue of ``orders`` gets."""
    found = []
    low, high = store.queues.range("orders", queue_id)
    for offset in range(low, high):
        read = store.queues.read("orders", queue_id, offset, count_max=1, bytes_max=1)
        [record] = read.slices
        found.append(decode_record(record).body)
    return found


def refuse(*_: object) -> None:
    """Do what a failing disk does."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def found_by_key(store: MessageStore) -> list[bytes]:
    found = store.by_key("orders", "k", count_max=1_000, begin_ms=0, end_ms=2**62)
    return [record.body for record in reversed(found)]


def log_of(directory: Path) -> list[bytes]:
    return [record.body for record in read_log(directory) if record.topic == "orders"]


@pytest.fixture
async def store(tmp_path: Path, mode: FlushMode) -> AsyncIterator[MessageStore]:
    store = await opened(tmp_path, small_settings(flush_mode=mode))
    await store.change(ORDERS)
    yield store
    if store.refusal is None:
        await store.close()


def open_files() -> set[Path]:
    """Return what this process has open, and how it is called."""
    found = list(Path("/proc/self/fd").iterdir())
    return {path.readlink() for path in found if path.is_symlink()}


class Flushes:
    """Flushes of segments of the log: each is counted when it begins, and ends once it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real = os.fdatasync
        self.failing = False
        self.count = 0
        self.may_end = threading.Event()
        self.may_end.set()
        monkeypatch.setattr("eruca_broker.store.log.segment.os.fdatasync", self._flush)

    def _flush(self, descriptor: int) -> None:
        self.count += 1
        if self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        assert self.may_end.wait(60)
        self._real(descriptor)


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> Flushes:
    """Simulate a fault that cannot be provoked: a disk whose flushes fail or take a given time."""
    return Flushes(monkeypatch)


# --- Promises -------------------------------------------------------------------------------------


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
    assert len(store.log_read(0, 1 << 20).records) == before
    with pytest.raises(RecordNotFoundError):
        store.record(end)

    may_go_on.set()
    assert (await sending).log_offset == end
    assert store.record(end).body == b"one"


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

    await store.probe_disk()

    assert store.refusal is None
    assert not warmed
    await send(store, bytes(range(1, 251)) * 60)
    await store.prepare_next_segment()
    assert warmed == [f"{store.segment_bytes:020d}"]
    await store.close()


async def test_a_checkpoint_promises_nothing_of_what_comes_while_the_log_is_flushed(
    tmp_path: Path, flushes: Flushes
) -> None:
    clock = ManualClock()
    store = await MessageStore.open(tmp_path, small_settings(), clock)
    await store.change(ORDERS)
    await store.checkpoint()
    clock.advance(1)
    before = await send(store, b"before")
    earlier = flushes.count
    flushes.may_end.clear()
    checking = asyncio.ensure_future(store.checkpoint())
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
    flushing = asyncio.ensure_future(store.flush())
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


# --- Segments and snapshots -----------------------------------------------------------------------


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


@BOTH_MODES
async def test_a_topic_that_is_being_deleted_takes_no_more_messages(store: MessageStore) -> None:
    await send(store, b"old")
    deleting = asyncio.ensure_future(store.change(TopicDeleted("orders")))
    await asyncio.sleep(0)

    with pytest.raises(TopicNotFoundError, match="being deleted"):
        await send(store, b"too late")

    await deleting
    await store.change(ORDERS)
    assert (await send(store, b"new")).queue_offset == 0
    assert bodies(store) == [b"new"]
    assert found_by_key(store) == [b"new"]


@BOTH_MODES
async def test_a_topic_goes_although_its_files_cannot_be_deleted_yet(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(store, b"old")
    await store.checkpoint()
    before = read_checkpoint(tmp_path)
    assert before is not None

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await store.change(TopicDeleted("orders"))
        await store.change(ORDERS)
        await send(store, b"late")  # its queue's files are not its own yet
        with pytest.raises(OSError, match="Input/output"):
            await store.checkpoint()
        assert bodies(store) == []
    # Or a crash would bring the old messages back.
    assert read_checkpoint(tmp_path) == before._replace(flushed_offset=store.flushed_offset)

    assert (await send(store, b"new")).queue_offset == 1
    await store.checkpoint()
    assert bodies(store) == [b"late", b"new"]
    assert read_checkpoint(tmp_path) != before


@pytest.mark.parametrize("is_killed", [False, True])
async def test_files_that_outlive_their_topic_are_gone_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await send(store, b"old")
    await store.checkpoint()
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        await store.change(TopicDeleted("orders"))
        await store.change(ORDERS)
        if is_killed:
            await abandon(store)
        else:
            await store.close()

    reopened = await opened(tmp_path)

    assert bodies(reopened) == []
    assert (await send(reopened, b"new")).queue_offset == 0
    assert bodies(reopened) == [b"new"]
    await reopened.close()


async def test_what_is_committed_while_a_topic_goes_is_none_of_its_successors(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    late = OffsetsCommitted("g", [CommittedOffset("orders", 0, 7)])
    await asyncio.gather(store.change(TopicDeleted("orders")), store.change(late))

    await store.change(ORDERS)

    assert store.state.committed_offset("g", "orders", 0) is None
    assert LogModel(read_log(tmp_path)).committed == {"g": {}}
    await store.close()


@BOTH_MODES
async def test_a_look_up_looks_at_nothing_of_a_deleted_topic(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(store, *(b"%d" % number for number in range(100)))
    assert len(found_by_key(store)) == 100  # all is indexed
    await store.change(TopicDeleted("orders"))
    await store.change(ORDERS)
    await send(store, b"new")
    looked_at: list[int] = []
    record = LogReader.record

    def look_at(self: LogReader, log_offset: int, **more: Any) -> Record:  # noqa: ANN401
        looked_at.append(log_offset)
        return record(self, log_offset, **more)

    monkeypatch.setattr(LogReader, "record", look_at)

    assert found_by_key(store) == [b"new"]
    assert len(looked_at) == 1


@BOTH_MODES
async def test_a_batch_larger_than_a_segment_changes_nothing(
    store: MessageStore, tmp_path: Path
) -> None:
    await send(store, b"small")
    files = list((tmp_path / "commitlog").iterdir())
    for size in (store.segment_bytes - 50, store.segment_bytes, 3 * store.segment_bytes):
        with pytest.raises(TooLargeError, match="do not fit into a segment"):
            await send(store, b"x" * size)

    assert list((tmp_path / "commitlog").iterdir()) == files
    assert (await send(store, b"next")).queue_offset == 1


@BOTH_MODES
async def test_a_batch_with_no_room_beside_the_snapshot_gets_a_segment_of_its_own(
    store: MessageStore, tmp_path: Path
) -> None:
    receipts = [await send(store, b"%d" % n * (store.segment_bytes - 300)) for n in range(3)]

    assert [receipt.log_offset % store.segment_bytes for receipt in receipts] == [0, 0, 0]
    assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2]
    *_, min_offset = await delete_oldest_segments(store, 9)
    assert min_offset == receipts[2].log_offset - store.segment_bytes  # its snapshot is there
    await store.close()
    reopened = await opened(tmp_path)
    assert reopened.state.topics.keys() == {"orders", EVENTS_TOPIC}
    await reopened.close()


@BOTH_MODES
async def test_a_state_larger_than_a_segment_is_written_in_parts(
    tmp_path: Path, mode: FlushMode
) -> None:
    settings = small_settings(flush_mode=mode, segment_bytes=16 * 1024)
    store = await opened(tmp_path, settings)
    for number in range(200):
        await store.change(TopicPut(f"topic-{number}", 1, 1, "rw"))
    await store.change(ORDERS)
    for _ in range(60):
        await send(store, b"x" * 400)
    before = all_answers(store)
    await store.close()

    assert LogModel(read_log(tmp_path)).topics.keys() >= {"topic-0", "topic-199"}
    store = await opened(tmp_path, settings)
    assert all_answers(store) == before
    assert await delete_oldest_segments(store, 1_000)
    await store.close()
    store = await opened(tmp_path, settings)
    assert store.state.topics.keys() == before["topics"].keys()  # type: ignore[attr-defined]
    await store.close()


@BOTH_MODES
async def test_parts_of_the_state_fit_into_segments_whatever_their_encoding_takes(
    tmp_path: Path, mode: FlushMode
) -> None:
    """A control character takes six bytes of JSON."""
    settings = small_settings(flush_mode=mode, segment_bytes=64 * 1024)
    store = await opened(tmp_path, settings)
    await store.change(ORDERS)
    subscribed = Subscribed("orders", f"a = '{chr(1) * 4_080}'", "sql92")
    groups = {f"group-{number}" for number in range(10)}
    for group in groups:
        await store.change(GroupSubscribed(group, (subscribed,)))
    for number in range(12):
        await send(store, b"%d" % number * 20_000)
    before = all_answers(store)
    await abandon(store)

    store = await opened(tmp_path, settings)

    assert all_answers(store) == before
    assert store.state.groups.keys() == groups
    assert {group.subscriptions for group in store.state.groups.values()} == {(subscribed,)}
    await store.close()


async def test_a_state_that_no_segment_can_hold_begins_no_segment(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await send(store, b"before")
    store.state.apply(
        GroupSubscribed("large", (Subscribed("orders", "x" * store.segment_bytes, "tag"),)), 0
    )

    with pytest.raises(TooLargeError, match="a part of the state"):
        await send(store, b"x" * (store.segment_bytes - 600))

    assert store.segment_count == 1
    await send(store, b"after")
    await abandon(store)
    reopened = await opened(tmp_path)
    assert bodies(reopened) == [b"before", b"after"]
    await reopened.close()


@BOTH_MODES
@pytest.mark.parametrize("kept", [0, 1])
async def test_a_segment_whose_snapshot_a_crash_prevented_gets_another(
    tmp_path: Path, mode: FlushMode, kept: int
) -> None:
    settings = small_settings(flush_mode=mode)
    store = await opened(tmp_path, settings)
    await store.change(ORDERS)
    while store.segment_count == 1:
        await send(store, b"x" * 700)
    base = (store.segment_count - 1) * store.segment_bytes
    await abandon(store)
    last = max((tmp_path / "commitlog").iterdir())
    (tmp_path / "checkpoint").unlink()
    last.write_bytes(last.read_bytes()[:kept].ljust(settings.segment_bytes, b"\0"))

    store = await opened(tmp_path, settings)

    snapshot = store.record(base)
    assert json.loads(snapshot.body)["event"] == "snapshot"
    await store.close()
    for path in sorted((tmp_path / "commitlog").iterdir())[:-1]:
        path.unlink()
    store = await opened(tmp_path, settings)
    assert store.state.topics.keys() == {"orders", EVENTS_TOPIC}
    assert store.queues.range("orders", 0)[1] > 0
    await store.close()


# --- A full disk ----------------------------------------------------------------------------------


@BOTH_MODES
@pytest.mark.parametrize("limit", [0, 400, 4_000, 10_000, 24 * 1024 - 1])
async def test_on_a_full_disk_nothing_acknowledged_is_lost_and_reads_go_on(
    tmp_path: Path, mode: FlushMode, limit: int
) -> None:
    settings = small_settings(flush_mode=mode)
    store = await opened(tmp_path, settings)
    await store.change(ORDERS)
    kept = [b"before"]
    await send(store, b"before")

    with file_size_limit(limit):
        for number in range(60):
            body = b"%d" % number * 300
            try:
                await send(store, body)
            except DiskFullError:
                await store.probe_disk()
            else:
                kept.append(body)
        assert isinstance(store.refusal, DiskFullError)
        assert store.refusal.retry_after_seconds
        store.log_read(0, 1 << 20)
        assert bodies(store) == kept[: len(bodies(store))]
        assert found_by_key(store) == kept[: len(found_by_key(store))]

    await store.probe_disk()
    assert store.refusal is None
    assert bodies(store) == found_by_key(store) == kept
    await send(store, b"after")
    assert log_of(tmp_path) == bodies(store) == [*kept, b"after"]
    await store.close()
    assert not (tmp_path / "abort").exists()


async def test_the_log_tells_once_that_writes_are_refused_and_that_they_are_accepted_again(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path, small_settings())
    await store.change(ORDERS)
    structlog.reset_defaults()
    with capture_logs() as lines:
        with file_size_limit(400):
            for _ in range(9):
                with suppress(DiskFullError):
                    await send(store, b"x" * 9_000)
        await store.probe_disk()
        await store.probe_disk()
        await send(store, b"after")
    await store.close()

    told = [line["event"] for line in lines if line["event"].startswith("writes")]
    assert told == ["writes are refused", "writes are accepted again"]


async def test_the_log_tells_once_that_the_key_index_is_behind(tmp_path: Path) -> None:
    store = await opened(tmp_path, replace(small_settings(), index_slots=64 * 1024))
    await store.change(ORDERS)
    structlog.reset_defaults()
    with capture_logs() as lines:
        with file_size_limit(store.segment_bytes):  # an index file is larger
            for _ in range(9):
                await send(store, b"x")
                found_by_key(store)
        found_by_key(store)
    await store.close()

    told = [line["event"] for line in lines if line["event"].startswith("key index")]
    assert told == ["key index is behind", "key index has caught up"]


@BOTH_MODES
async def test_a_full_key_index_hides_nothing_and_loses_no_timer(
    tmp_path: Path, mode: FlushMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pending timers are in the next snapshot, or after the place from which queues report them."""
    monkeypatch.setattr("eruca_broker.store.dispatcher.INDEX_BACKLOG_MAX", 1)
    settings = replace(small_settings(flush_mode=mode), index_slots=64 * 1024)
    store = await opened(tmp_path, settings)
    await store.change(ORDERS)
    wait = Wait(deliver_at_ms=ManualClock().now_ms() + 3_600_000)
    later = waiting(message("orders", 0, b"later", keys="k"), wait, Destination("orders", 0))

    with file_size_limit(store.segment_bytes):  # an index file is larger
        await store.append(batch_of_records(*wait.place, [later]), settings.store_host)
        assert isinstance(store.refusal, DiskFullError)
        assert len(store.timers) == 1
        with pytest.raises(DiskFullError, match="key index"):
            await send(store, b"refused")
        await store.probe_disk()
        assert isinstance(store.refusal, DiskFullError)
        for _ in range(2):  # as when timers are carried forward
            await store.append_group([batch("orders", 0, [b"x" * 20_000])], despite_full_disk=True)
    assert store.segment_count > 1
    await abandon(store)

    store = await opened(tmp_path, settings)
    assert len(store.timers) == 1
    await store.close()


@BOTH_MODES
async def test_a_store_closed_on_a_full_disk_lacks_nothing_when_it_is_opened_again(
    tmp_path: Path, mode: FlushMode
) -> None:
    """The log has room, its projections have none: what is not dispatched must not be forgotten."""
    settings = small_settings(flush_mode=mode)
    store = await opened(tmp_path, settings)
    await store.change(ORDERS)
    kept = []
    with file_size_limit(store.log_max_offset + 1_000):
        for queue_id in range(4):  # each new queue needs a new file
            with_limit = file_size_limit(0) if queue_id == 3 else file_size_limit(10**6)
            with with_limit:
                try:
                    await send(store, b"%d" % queue_id, queue_id=queue_id)
                except DiskFullError:
                    break
                kept.append(queue_id)
        await store.close()

    store = await opened(tmp_path, settings)
    for queue_id in kept:
        assert bodies(store, queue_id) == [b"%d" % queue_id]
    await store.close()


@BOTH_MODES
async def test_an_acknowledged_message_that_no_queue_has_room_for_is_there_later(
    store: MessageStore, tmp_path: Path
) -> None:
    """Queue files are full, the log is not: only a limit on the former can show it."""
    queue_files = tmp_path / "consumequeue" / "orders"
    queue_files.mkdir(parents=True, exist_ok=True)
    (queue_files / "3").write_bytes(b"in the way of a directory")

    receipt = await send(store, b"hidden", queue_id=3)

    assert receipt.queue_offset == 0
    assert store.refusal is None  # nothing is short: the queue lags, and holds up no other
    assert store.queues.range("orders", 3) == (0, 0)
    await store.close()
    assert (tmp_path / "abort").exists()
    (queue_files / "3").unlink()
    reopened = await opened(tmp_path)
    assert bodies(reopened, 3) == [b"hidden"]
    await reopened.close()


@BOTH_MODES
async def test_want_of_open_files_is_over_once_there_are_some(
    store: MessageStore, tmp_path: Path
) -> None:
    await store.checkpoint()
    before = read_checkpoint(tmp_path)
    await send(store, b"first", queue_id=0)

    with open_files_limit(0):
        await send(store, b"hidden", queue_id=3)  # in the log; its queue cannot be made
        with pytest.raises(UnavailableError, match="Too many open files") as refused:
            await send(store, b"refused", queue_id=3)
        await store.probe_disk()
        with pytest.raises(OSError, match="Too many open files"):
            await store.checkpoint()
    assert type(refused.value) is type(store.refusal) is UnavailableError
    assert "ulimit -n" in (refused.value.fix or "")

    await store.probe_disk()
    await send(store, b"after", queue_id=3)

    assert bodies(store, 3) == [b"hidden", b"after"]
    await store.checkpoint()
    assert read_checkpoint(tmp_path) != before
    await store.close()
    assert not (tmp_path / "abort").exists()


async def test_files_that_cannot_be_opened_for_a_flush_have_lost_nothing(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await send(store, b"kept")
    assert found_by_key(store) == [b"kept"]  # so that only the flushes are left
    with open_files_limit(0), pytest.raises(OSError, match="Too many open files"):
        await store.checkpoint()

    await store.checkpoint()

    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.projected_offset == store.log_max_offset
    await store.close()


def is_of(descriptor: int, directory: Path) -> bool:
    return directory in Path(f"/proc/self/fd/{descriptor}").readlink().parents


@BOTH_MODES
@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO], ids=errno.errorcode.get
)
async def test_a_write_that_fails_in_a_checkpoint_is_made_again_by_the_next(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    await send(store, b"kept")
    assert found_by_key(store) == [b"kept"]  # so that only the index's header is left to write
    pwrite = os.pwrite

    def write(descriptor: int, data: bytes, position: int) -> int:
        if is_of(descriptor, tmp_path / "index"):
            raise OSError(number, os.strerror(number))
        return pwrite(descriptor, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write)
        for _ in range(3):
            with pytest.raises(OSError, match=os.strerror(number)):
                await store.checkpoint()

    await store.checkpoint()

    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.projected_offset == store.log_max_offset
    await store.close()
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("files", ["index", "consumequeue"])
async def test_after_a_flush_that_failed_only_a_restart_brings_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, files: str
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await store.checkpoint()
    promised = read_checkpoint(tmp_path)
    assert promised is not None
    await send(store, b"kept")
    assert found_by_key(store) == [b"kept"]
    fdatasync = os.fdatasync

    def flush(descriptor: int) -> None:
        if is_of(descriptor, tmp_path / files):
            raise OSError(number, os.strerror(number))
        fdatasync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", flush)
        with pytest.raises(FlushError, match=os.strerror(number)):
            await store.checkpoint()
    with pytest.raises(FlushError, match="restart the broker"):
        await store.checkpoint()
    failed = {p.name: p.failure for p in store.projections() if p.failure is not None}
    assert list(failed) == ["key_index" if files == "index" else "consume_queues"]
    assert "restart the broker" in str(failed)
    assert read_checkpoint(tmp_path) == promised._replace(flushed_offset=store.flushed_offset)
    await send(store, b"after")
    assert bodies(store) == [b"kept", b"after"]
    await store.close()
    assert (tmp_path / "abort").exists()

    store = await opened(tmp_path)
    assert bodies(store) == [b"kept", b"after"]
    await store.checkpoint()
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.projected_offset == store.log_max_offset
    await store.close()
    assert not (tmp_path / "abort").exists()


async def test_a_flush_that_failed_while_the_index_took_entries_in_is_final_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    fdatasync = os.fdatasync

    def flush(descriptor: int) -> None:
        if is_of(descriptor, tmp_path / "index"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fdatasync(descriptor)

    keys = "all " + " ".join(f"k{number}" for number in range(4))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", flush)
        await store.append(batch("orders", 0, [b"x"] * 60, keys=keys))
        found = store.by_key("orders", "all", count_max=100, begin_ms=0, end_ms=2**62)
        assert len(found) == 60

    with pytest.raises(FlushError, match="restart the broker"):
        await store.checkpoint()
    assert [p.name for p in store.projections() if p.failure is not None] == ["key_index"]
    await store.close()
    assert (tmp_path / "abort").exists()


async def test_no_queue_leads_to_what_retention_has_deleted_while_files_were_short(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    for number in range(160):
        await send(store, b"%d" % number * 100, queue_id=number % 4)
    await store.checkpoint()
    assert store.segment_count > 2
    store._consume_queues.close()  # as if the descriptors had been needed for other queues

    with open_files_limit(0), pytest.raises(OSError, match="Too many open files"):
        await delete_oldest_segments(store, 1)
    while_short = [len(bodies(store, queue_id)) for queue_id in range(4)]
    deleted = await delete_oldest_segments(store, 1)

    assert while_short == [40] * 4
    assert deleted == [store.segment_bytes]
    left = [len(bodies(store, queue_id)) for queue_id in range(4)]
    assert 0 < sum(left) < 160
    await store.close()


async def test_a_log_that_cannot_begin_says_so_and_keeps_nothing_locked(tmp_path: Path) -> None:
    with file_size_limit(8_192), pytest.raises(UnavailableError, match="no room for a new segment"):
        await opened(tmp_path)

    store = await opened(tmp_path)
    await store.change(ORDERS)
    await store.close()


async def test_a_start_that_fails_at_its_end_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as disk:
        fail = Mock(side_effect=OSError(errno.EIO, "lost pages"))
        disk.setattr("eruca_broker.store.config.config_snapshots.replace_files", fail)
        with pytest.raises(OSError, match="lost pages"):
            await opened(tmp_path)

    left_open = [path for path in open_files() if tmp_path in path.parents]
    assert {path.parent.name for path in left_open} <= {"commitlog"}  # a mapping, for who reads
    await (await opened(tmp_path)).close()


@BOTH_MODES
@pytest.mark.parametrize("is_lost", [False, True], ids=["killed", "killed, queues lost"])
@pytest.mark.parametrize("limit", [0, 100, 1_000, 8_192, 23_000])
async def test_a_start_on_a_full_disk_serves_reads_and_recovers_by_itself(
    tmp_path: Path, mode: FlushMode, limit: int, *, is_lost: bool
) -> None:
    settings = small_settings(flush_mode=mode)
    store = await opened(tmp_path, settings)
    await store.change(ORDERS)
    sent = [b"%d" % number * 300 for number in range(60)]
    for body in sent:
        await send(store, body)
    await store.change(OffsetsCommitted("g", [CommittedOffset("orders", 0, 7)]))
    await abandon(store)
    if is_lost:
        shutil.rmtree(tmp_path / "consumequeue")

    with file_size_limit(limit):
        for _ in range(2):  # killed there, it starts again
            store = await opened(tmp_path, settings)
            assert bodies(store) == found_by_key(store) == sent
            assert store.state.committed_offset("g", "orders", 0) == 7
            await store.probe_disk()
            assert store.refusal is None or isinstance(store.refusal, DiskFullError)
            await abandon(store)
        store = await opened(tmp_path, settings)
    await store.probe_disk()

    assert store.refusal is None
    await send(store, b"last")
    assert bodies(store) == found_by_key(store) == [*sent, b"last"]
    await store.checkpoint()
    assert {projection.failure for projection in store.projections()} == {None}
    await abandon(store)
    for _ in range(2):
        store = await opened(tmp_path, settings)
        assert bodies(store) == found_by_key(store) == [*sent, b"last"]
        await store.close()


# --- A failing disk -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [FlushMode.SYNC])
async def test_when_a_flush_fails_nothing_is_acknowledged_any_more(
    store: MessageStore, tmp_path: Path, flushes: Flushes
) -> None:
    await send(store, b"safe")
    flushes.failing = True

    outcomes = await asyncio.gather(
        *(send(store, b"doubtful") for _ in range(3)), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [StoreFailedError] * 3
    flushes.failing = False  # the kernel would call the next one a success
    with pytest.raises(StoreFailedError):
        await send(store, b"refused")
    with pytest.raises(StoreFailedError):
        await store.flush()
    await store.probe_disk()
    assert isinstance(store.refusal, StoreFailedError)
    assert bodies(store) == found_by_key(store) == [b"safe"]
    assert store.visible_offset == store.flushed_offset
    await store.close()
    assert (tmp_path / "abort").exists()


@pytest.mark.parametrize("mode", [FlushMode.SYNC])
async def test_what_was_accepted_while_a_flush_failed_is_not_acknowledged_either(
    store: MessageStore, flushes: Flushes
) -> None:
    """It would lie behind a hole. Every moment between acceptance and failure is tried."""
    flushes.failing = True
    sending = [asyncio.ensure_future(send(store, b"first"))]
    while store.refusal is None:
        await asyncio.sleep(0)
        if store.refusal is None:
            sending.append(asyncio.ensure_future(send(store, b"%d" % len(sending))))
    flushes.failing = False

    outcomes = await asyncio.gather(*sending, return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} == {StoreFailedError}
    assert bodies(store) == []


@BOTH_MODES
async def test_a_restart_mends_a_failed_flush_and_finds_what_was_acknowledged(
    store: MessageStore, tmp_path: Path, flushes: Flushes, mode: FlushMode
) -> None:
    await send(store, b"acknowledged")
    flushes.failing = True
    if mode is FlushMode.SYNC:
        with pytest.raises(StoreFailedError):
            await send(store, b"in doubt")
    else:
        with pytest.raises(StoreFailedError):
            await store.flush()
    await store.close()
    flushes.failing = False

    store = await opened(tmp_path, small_settings(flush_mode=mode))

    assert bodies(store)[0] == b"acknowledged"
    await send(store, b"after")
    assert bodies(store)[-1] == b"after"
    await store.close()


async def test_what_a_failed_flush_has_given_up_is_written_again_before_it_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the next power cut would leave a hole, and acknowledged messages behind it."""
    disk = ForgetfulDisk(monkeypatch, tmp_path / "commitlog")
    settings = small_settings(flush_mode=FlushMode.SYNC)
    store = await opened(tmp_path, settings)
    await store.change(ORDERS)
    await send(store, b"acknowledged")
    await store.checkpoint()
    disk.is_failing = True
    with pytest.raises(StoreFailedError):
        await send(store, b"in doubt")
    await store.close()
    disk.is_failing = False

    store = await opened(tmp_path, settings)
    await send(store, b"after")
    await store.checkpoint()
    await abandon(store)
    disk.cut_power()

    store = await opened(tmp_path, settings)
    assert bodies(store) == [b"acknowledged", b"in doubt", b"after"]
    await store.close()


# --- Retention ------------------------------------------------------------------------------------


async def test_what_goes_and_what_it_was_superseded_by_are_flushed_first(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    while store.segment_count < 4:
        await send(store, b"x" * 700)

    assert store.flushed_offset < store.visible_offset
    assert len(await delete_oldest_segments(store, 9)) == 3
    assert store.flushed_offset == store.visible_offset

    assert store.log_min_offset == 3 * store.segment_bytes
    low, high = store.queues.range("orders", 0)
    assert 0 < low < high
    read = store.queues.read("orders", 0, 0, count_max=1, bytes_max=1)
    assert (read.status, read.next_offset) == (PullStatus.OFFSET_TOO_SMALL, low)
    await store.close()


async def test_keys_still_to_be_indexed_may_expire(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    receipts = [await send(store, b"x" * 700) for _ in range(90)]
    *_, min_offset = await delete_oldest_segments(store, 2)

    found = store.by_key("orders", "k", count_max=1_000, begin_ms=0, end_ms=2**62)

    kept = [receipt.log_offset for receipt in receipts if receipt.log_offset >= min_offset]
    assert sorted(record.log_offset for record in found) == kept
    await store.close()


# --- Opening and closing --------------------------------------------------------------------------


@BOTH_MODES
async def test_closing_finishes_what_was_begun_and_refuses_what_comes_later(
    store: MessageStore, tmp_path: Path
) -> None:
    begun = asyncio.ensure_future(send(store, b"begun"))
    await asyncio.sleep(0)

    await store.close()

    assert (await begun).queue_offset == 0
    with pytest.raises(NotReadyError):
        await send(store, b"late")
    assert not (tmp_path / "abort").exists()
    reopened = await opened(tmp_path)
    assert bodies(reopened) == [b"begun"]
    await reopened.close()


async def test_a_prepared_segment_is_used_and_not_left_behind() -> None:
    directory = scratch_directory()
    store = await opened(directory)
    await store.change(ORDERS)
    while 2 * store.log_max_offset <= store.segment_bytes:
        await send(store, b"x" * 700)
    await store.prepare_next_segment()
    assert len(list((directory / "commitlog").iterdir())) == 2
    assert store.segment_count == 1

    await store.close()

    assert len(list((directory / "commitlog").iterdir())) == 1


async def test_without_room_for_the_next_segment_the_current_one_is_filled(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    with file_size_limit(store.segment_bytes - 1):
        while 3 * store.log_max_offset <= 2 * store.segment_bytes:
            await send(store, b"x" * 700)
            await store.prepare_next_segment()

    assert store.refusal is None
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{0:020d}"]
    await store.close()


# --- What threads do ------------------------------------------------------------------------------


class InThread:
    """A function in the place of another, that notes where it runs and can be held up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self._real = resolve_name(name)
        self.has_begun = asyncio.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.threads: set[int] = set()
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(name, self)

    def __call__(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        self.threads.add(threading.get_ident())
        self._loop.call_soon_threadsafe(self.has_begun.set)
        self.may_go_on.wait(PATIENCE_SECONDS)
        return self._real(*arguments, **named)


async def test_who_gives_up_opening_leaves_once_nobody_mends_the_files_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovering = InThread(monkeypatch, "eruca_broker.store.message_store.recover")
    recovering.may_go_on.clear()
    opening = asyncio.create_task(opened(tmp_path))
    await recovering.has_begun.wait()

    opening.cancel()
    await asyncio.wait([opening], timeout=0.01)
    with pytest.raises(StoreLockedError):
        lock_directory(tmp_path)
    recovering.may_go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await opening
    lock_directory(tmp_path).release()


async def test_a_checkpoint_that_is_given_up_leaves_no_flush_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await send(store, b"one")
    await store.flush()
    flushing = InThread(monkeypatch, "eruca_broker.store.files.unflushed._sync_file")
    flushing.may_go_on.clear()
    checkpoint = asyncio.create_task(store.checkpoint())
    await flushing.has_begun.wait()

    checkpoint.cancel()
    _, under_way = await asyncio.wait([checkpoint], timeout=0.01)
    flushing.may_go_on.set()

    assert under_way
    with pytest.raises(asyncio.CancelledError):
        await checkpoint
    await store.close()
    assert not (tmp_path / "abort").exists()


async def test_nobody_waits_while_a_checkpoint_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    writing = InThread(monkeypatch, "eruca_broker.store.checkpoints.write_checkpoint")

    await store.checkpoint()

    assert writing.threads
    assert threading.get_ident() not in writing.threads
    await store.close()


async def test_nobody_waits_while_what_a_segment_took_is_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    while store.segment_count < 3:
        await send(store, b"x" * 700)
    gone = tmp_path / "commitlog" / f"{0:020d} (deleted)"
    freeing = InThread(monkeypatch, "eruca_broker.store.log.commit_log.sync_directory")

    await delete_oldest_segments(store, 1)
    assert gone in open_files()
    await store.retention.let_deleted_go()

    assert freeing.threads
    assert threading.get_ident() not in freeing.threads
    assert gone not in open_files()
    await store.close()


async def test_nobody_waits_while_a_full_disk_is_tried_for_a_further_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    store.refusal = DiskFullError("the disk is full")
    making = InThread(monkeypatch, "eruca_broker.store.log.commit_log.Segment.create")
    making.may_go_on.clear()
    probe = asyncio.create_task(store.probe_disk())
    await making.has_begun.wait()

    assert isinstance(store.refusal, DiskFullError)
    store.refusal = other = StoreFailedError("the disk has failed")
    making.may_go_on.set()
    await probe

    assert threading.get_ident() not in making.threads
    assert store.refusal is other
    store.refusal = None
    await store.close()


async def test_keys_are_indexed_soon_without_anybody_asking(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await send(store, b"one")

    def indexed() -> Any:  # noqa: ANN401 - truthy or not
        return [p.log_offset for p in store.projections() if p.name == "key_index"]

    await until(lambda: indexed() == [store.log_max_offset])
    await store.close()
