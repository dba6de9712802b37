"""The message store: opening and closing."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from unittest.mock import Mock

import pytest

from eruca.contract.errors import NotReadyError, UnavailableError
from eruca_broker.store.files.directory_lock import StoreLockedError, lock_directory
from eruca_broker.store.message_store import MessageStore
from support.limits import file_size_limit
from support.message_stores import BOTH_MODES, ORDERS, InThread, bodies, open_files, opened, send

pytestmark = pytest.mark.anyio


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


async def test_who_gives_up_opening_leaves_once_nobody_repairs_the_files_any_more(
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
