"""A projection whose file fails: the log goes on, readers get an error, and it catches up."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eruca.contract.errors import UnavailableError
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.state.events import TopicDeleted, TopicPut
from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.log.commit_log import CorruptLogError
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.clocks import ManualClock
from support.stores import (
    abandon,
    batch,
    delete_oldest_segments,
    message,
    small_settings,
    without_log_lines,
)

pytestmark = pytest.mark.anyio

ORDERS = TopicPut("orders", 4, 4, "rw")


class FailingFiles:
    """Files whose path has a given part: the disk refuses to write them, or to read them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unwritable = ""
        self.unreadable = ""
        self._pwrite, self._pread = os.pwrite, os.pread
        monkeypatch.setattr(os, "pwrite", self._write)
        monkeypatch.setattr(os, "pread", self._read)

    def _write(self, descriptor: int, data: bytes, position: int) -> int:
        self._check(descriptor, self.unwritable)
        return self._pwrite(descriptor, data, position)

    def _read(self, descriptor: int, size: int, position: int) -> bytes:
        self._check(descriptor, self.unreadable)
        return self._pread(descriptor, size, position)

    def _check(self, descriptor: int, part: str) -> None:
        if part and part in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture(autouse=True)
def _without_log_lines() -> Iterator[None]:
    with without_log_lines():
        yield


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> FailingFiles:
    """The one thing that cannot be provoked: a file the disk has lost."""
    return FailingFiles(monkeypatch)


@pytest.fixture(params=list(FlushMode))
async def store(
    tmp_path: Path, files: FailingFiles, request: pytest.FixtureRequest
) -> AsyncIterator[MessageStore]:
    store = await opened(tmp_path, request.param)
    await store.change(ORDERS)
    yield store
    files.unwritable = files.unreadable = ""
    await store.close()


async def opened(directory: Path, mode: FlushMode = FlushMode.ASYNC) -> MessageStore:
    return await MessageStore.open(directory, small_settings(flush_mode=mode), ManualClock())


async def send(store: MessageStore, body: bytes, queue_id: int = 0) -> None:
    await store.append(batch("orders", queue_id, [body], keys="k"))


def bodies(store: MessageStore, queue_id: int = 0) -> list[bytes]:
    low, high = store.queues.range("orders", queue_id)
    if low == high:
        return []
    read = store.queues.read("orders", queue_id, low, count_max=1_000, bytes_max=1 << 20)
    return [record.body for record in read.records()]


def found_by_key(store: MessageStore) -> set[bytes]:
    return {r.body for r in store.log.by_key("orders", "k", count_max=99, begin_ms=0, end_ms=2**62)}


async def test_the_log_is_written_and_flushed_while_a_queue_cannot_be(
    store: MessageStore, files: FailingFiles
) -> None:
    await send(store, b"before")
    files.unwritable = "consumequeue/orders/0/"

    for n in range(100):  # more than a segment
        await send(store, b"%d" % n * 100)
        await send(store, b"%d" % n, queue_id=1)
    await store.upkeep.flush()

    assert store.refusal is None
    assert store.upkeep.can_flush
    assert store.flushed_offset == store.log_max_offset
    assert bodies(store, 1) == [b"%d" % n for n in range(100)]
    files.unwritable = ""


async def test_who_reads_a_queue_that_lags_is_told_where_its_messages_end(
    store: MessageStore, files: FailingFiles
) -> None:
    await send(store, b"before")
    files.unwritable = "consumequeue/orders/0/"
    await send(store, b"late")

    assert bodies(store) == [b"before"]
    with pytest.raises(UnavailableError, match="consume queue 0 of 'orders'") as told:
        store.queues.read("orders", 0, 1, count_max=1, bytes_max=1)
    assert "safe in the log" in (told.value.fix or "")
    queues, _, state = store.projections()
    assert queues.failure == os.strerror(errno.EIO)
    assert queues.log_offset < state.log_offset == store.log_max_offset


async def test_a_queue_catches_up_from_the_log_once_its_file_can_be_written(
    store: MessageStore, files: FailingFiles
) -> None:
    await send(store, b"0")
    files.unwritable = "consumequeue/orders/0/"
    for n in range(1, 100):
        await send(store, b"%d" % n)
    with pytest.raises(OSError, match="Input/output"):
        await store.upkeep.checkpoint()
    arrived: list[tuple[str, int]] = []
    store.on_arrival = arrived.extend

    files.unwritable = ""
    await store.upkeep.checkpoint()

    assert bodies(store) == [b"%d" % n for n in range(100)]
    assert ("orders", 0) in arrived
    assert [p.failure for p in store.projections()] == [None] * 3
    await send(store, b"100")
    assert store.queues.range("orders", 0) == (0, 101)


async def test_a_checkpoint_does_not_promise_what_a_queue_lacks(
    tmp_path: Path, files: FailingFiles
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await send(store, b"0")
    await store.upkeep.checkpoint()
    promised = read_checkpoint(tmp_path)
    assert promised is not None
    files.unwritable = "consumequeue/orders/0/"
    await send(store, b"1")
    with pytest.raises(OSError, match="Input/output"):
        await store.upkeep.checkpoint()
    assert read_checkpoint(tmp_path) == promised._replace(flushed_offset=store.flushed_offset)
    await abandon(store)
    files.unwritable = ""

    store = await opened(tmp_path)

    assert bodies(store) == [b"0", b"1"]
    await store.close()


async def test_what_was_flushed_while_a_queue_lagged_is_not_taken_for_a_torn_tail(
    tmp_path: Path, files: FailingFiles
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await store.upkeep.checkpoint()
    files.unwritable = "consumequeue/orders/0/"
    for body in (b"first", b"rotten", b"last"):
        await send(store, body)
    with pytest.raises(OSError, match="Input/output"):
        await store.upkeep.checkpoint()
    flushed = store.flushed_offset
    await abandon(store)
    files.unwritable = ""
    [segment] = (tmp_path / "commitlog").iterdir()
    segment.write_bytes(segment.read_bytes().replace(b"rotten", b"Rotten"))

    with pytest.raises(CorruptLogError, match=f"but was durable up to {flushed}"):
        await opened(tmp_path)


async def test_what_is_told_of_a_queue_that_goes_on_lagging_does_not_grow(
    store: MessageStore, files: FailingFiles
) -> None:
    await send(store, b"before")
    files.unwritable = "consumequeue/orders/0/"
    await send(store, b"lost")
    lengths = []

    for _ in range(3):
        with pytest.raises(OSError, match="Input/output") as told:
            await store.upkeep.checkpoint()
        lengths.append(len(told.traceback))

    assert lengths == [lengths[0]] * 3
    files.unwritable = ""


async def test_retention_leaves_what_a_queue_lacks(
    store: MessageStore, files: FailingFiles
) -> None:
    files.unwritable = "consumequeue/orders/0/"
    await send(store, b"late")
    while store.segment_count < 4:
        await send(store, b"x" * 700, queue_id=1)

    assert await delete_oldest_segments(store, 9) == []

    files.unwritable = ""
    await store.upkeep.checkpoint()
    assert bodies(store) == [b"late"]
    assert await delete_oldest_segments(store, 9)


async def test_a_queue_of_a_deleted_topic_lags_no_more(
    store: MessageStore, files: FailingFiles
) -> None:
    files.unwritable = "consumequeue/orders/0/"
    await send(store, b"lost")
    await store.change(TopicDeleted("orders"))
    await store.change(ORDERS)
    files.unwritable = ""
    await send(store, b"new")

    await store.upkeep.checkpoint()

    assert bodies(store) == [b"new"]


async def test_who_looks_for_a_key_is_told_while_the_index_lags_and_finds_all_after(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(store, b"before")
    assert found_by_key(store) == {b"before"}

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("eruca_broker.store.projecting.dispatcher.INDEX_BACKLOG_MAX", 1)
        patch.setattr(KeyIndex, "put_many", fail)
        for _ in range(3):
            await send(store, b"late")

    with pytest.raises(UnavailableError, match="key index"):
        found_by_key(store)
    assert store.projections()[1].failure == os.strerror(errno.EIO)
    await store.upkeep.checkpoint()
    assert found_by_key(store) == {b"before", b"late"}
    await send(store, b"after")
    assert found_by_key(store) == {b"before", b"late", b"after"}


async def test_an_index_that_lags_once_what_it_lacks_is_deleted_goes_on_behind_that(
    store: MessageStore, files: FailingFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.unwritable = "/index/"
    await send(store, b"deleted")
    while store.segment_count < 4:
        await store.append(batch("orders", 1, [b"x" * 700]))
    assert await delete_oldest_segments(store, 2)
    with monkeypatch.context() as patch:
        patch.setattr("eruca_broker.store.projecting.dispatcher.INDEX_BACKLOG_MAX", 1)
        await send(store, b"late")
    assert store.projections()[1].failure == os.strerror(errno.EIO)

    files.unwritable = ""
    await store.upkeep.checkpoint()

    assert found_by_key(store) == {b"late"}


async def test_timers_are_set_although_their_queue_cannot_be_written_or_read(
    store: MessageStore, files: FailingFiles
) -> None:
    files.unwritable = files.unreadable = "consumequeue/rmq_sys"
    wait = Wait(deliver_at_ms=ManualClock().now_ms() + 60_000)
    record = waiting(message("orders", 0, b"later"), wait, Destination("orders", 0))
    receipt = await store.append(batch_of_records(*wait.place, [record]))

    assert store.timers.rows().tolist() == [[wait.deliver_at_ms, receipt.log_offset]]


async def test_a_queue_that_cannot_be_read_refuses_its_own_messages_and_no_others(
    tmp_path: Path, files: FailingFiles
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await send(store, b"0")
    await store.close()
    store = await opened(tmp_path)
    files.unreadable = "consumequeue/orders/0/"
    store._consume_queues._queues["orders", 0] = None  # as before anyone asked for it

    with pytest.raises(UnavailableError, match="consume queue 0"):
        await send(store, b"refused")
    with pytest.raises(UnavailableError, match="consume queue 0"):
        await store.append_group([batch("orders", q, [b"refused"]) for q in (1, 0)])
    for _ in range(100):  # more than a segment: snapshots tell the queue's end
        await send(store, b"x" * 300, queue_id=1)

    files.unreadable = ""
    await send(store, b"1")
    assert bodies(store) == [b"0", b"1"]
    assert bodies(store, 1) == [b"x" * 300] * 100
    await store.close()


async def test_what_was_acknowledged_is_flushed_although_the_log_can_no_longer_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await send(store, b"acknowledged")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", fail)
        with pytest.raises(UnavailableError):
            await send(store, b"refused")
    await store.upkeep.flush()

    assert store.flushed_offset == store.log_max_offset
    await store.close()


async def test_a_topic_created_again_while_its_queue_fails_gets_none_of_the_old_ones_messages(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    directory = tmp_path / "consumequeue" / "orders"
    directory.touch()  # in the way of the queue's directory
    await send(store, b"old")
    for _ in range(20):  # more than a segment
        await store.append(batch("others", 0, [b"x" * 2_000]))

    catching_up = store._dispatcher.catch_up()
    next(catching_up)  # the old one has failed again, and others have their turn
    await store.change(TopicDeleted("orders"))
    await store.change(ORDERS)
    directory.touch()
    await send(store, b"new")
    list(catching_up)
    directory.unlink()
    await store.upkeep.checkpoint()

    assert bodies(store) == [b"new"]
    await store.close()
