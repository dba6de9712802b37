"""The message store on a full disk."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from eruca.contract.errors import DiskFullError
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.clocks import ManualClock
from support.limits import file_size_limit
from support.message_stores import BOTH_MODES, ORDERS, bodies, found_by_key, log_of, opened, send
from support.stores import abandon, batch, message, small_settings

pytestmark = pytest.mark.anyio


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
                await store.upkeep.probe_disk()
            else:
                kept.append(body)
        assert isinstance(store.refusal, DiskFullError)
        assert store.refusal.retry_after_seconds
        store.log.read(0, 1 << 20)
        assert bodies(store) == kept[: len(bodies(store))]
        assert found_by_key(store) == kept[: len(found_by_key(store))]

    await store.upkeep.probe_disk()
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
        await store.upkeep.probe_disk()
        await store.upkeep.probe_disk()
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
    monkeypatch.setattr("eruca_broker.store.projecting.dispatcher.INDEX_BACKLOG_MAX", 1)
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
        await store.upkeep.probe_disk()
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
            await store.upkeep.probe_disk()
            assert store.refusal is None or isinstance(store.refusal, DiskFullError)
            await abandon(store)
        store = await opened(tmp_path, settings)
    await store.upkeep.probe_disk()

    assert store.refusal is None
    await send(store, b"last")
    assert bodies(store) == found_by_key(store) == [*sent, b"last"]
    await store.upkeep.checkpoint()
    assert {projection.failure for projection in store.projections()} == {None}
    await abandon(store)
    for _ in range(2):
        store = await opened(tmp_path, settings)
        assert bodies(store) == found_by_key(store) == [*sent, b"last"]
        await store.close()
