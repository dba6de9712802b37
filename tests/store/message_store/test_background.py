"""The message store: what is done in threads holds up nobody."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from eruca.contract.errors import DiskFullError, StoreFailedError
from support.message_stores import ORDERS, InThread, open_files, opened, send
from support.stores import delete_oldest_segments
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_a_checkpoint_that_is_given_up_leaves_no_flush_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await send(store, b"one")
    await store.upkeep.flush()
    flushing = InThread(monkeypatch, "eruca_broker.store.files.unflushed._sync_file")
    flushing.may_go_on.clear()
    checkpoint = asyncio.create_task(store.upkeep.checkpoint())
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
    writing = InThread(monkeypatch, "eruca_broker.store.projecting.checkpoints.write_checkpoint")

    await store.upkeep.checkpoint()

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
    probe = asyncio.create_task(store.upkeep.probe_disk())
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
