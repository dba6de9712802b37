"""The message store: writes and flushes that fail in a checkpoint."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.files.flushing import FlushError
from support.message_stores import BOTH_MODES, ORDERS, bodies, found_by_key, is_of, opened, send
from support.stores import batch

pytestmark = pytest.mark.anyio


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
                await store.upkeep.checkpoint()

    await store.upkeep.checkpoint()

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
    await store.upkeep.checkpoint()
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
            await store.upkeep.checkpoint()
    with pytest.raises(FlushError, match="restart the broker"):
        await store.upkeep.checkpoint()
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
    await store.upkeep.checkpoint()
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
        found = store.log.by_key("orders", "all", count_max=100, begin_ms=0, end_ms=2**62)
        assert len(found) == 60

    with pytest.raises(FlushError, match="restart the broker"):
        await store.upkeep.checkpoint()
    assert [p.name for p in store.projections() if p.failure is not None] == ["key_index"]
    await store.close()
    assert (tmp_path / "abort").exists()
