"""The message store: topics that are deleted, and what goes with them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from eruca.contract.errors import TopicNotFoundError
from eruca.contract.records import Record
from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted, TopicDeleted
from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.reading.log_reader import LogReader
from support.log_model import LogModel, read_log
from support.message_stores import BOTH_MODES, ORDERS, bodies, found_by_key, opened, refuse, send
from support.patience import PATIENCE_SECONDS
from support.stores import abandon

pytestmark = pytest.mark.anyio


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
    await store.upkeep.checkpoint()
    before = read_checkpoint(tmp_path)
    assert before is not None

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await store.change(TopicDeleted("orders"))
        await store.change(ORDERS)
        await send(store, b"late")  # its queue's files are not its own yet
        with pytest.raises(OSError, match="Input/output"):
            await store.upkeep.checkpoint()
        assert bodies(store) == []
    # Or a crash would bring the old messages back.
    assert read_checkpoint(tmp_path) == before._replace(flushed_offset=store.flushed_offset)

    assert (await send(store, b"new")).queue_offset == 1
    await store.upkeep.checkpoint()
    assert bodies(store) == [b"late", b"new"]
    assert read_checkpoint(tmp_path) != before


@pytest.mark.parametrize("is_killed", [False, True])
async def test_files_that_outlive_their_topic_are_gone_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await send(store, b"old")
    await store.upkeep.checkpoint()
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
