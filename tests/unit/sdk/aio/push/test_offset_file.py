"""The offset file of a broadcasting client: one writer at a time, come what may."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from eruca.aio.push.offset_file import OffsetFile
from eruca.core.messages.message_queue import MessageQueue
from support.patience import PATIENCE_SECONDS
from support.waiting import until

pytestmark = pytest.mark.anyio

QUEUE = MessageQueue("orders", "a", 0)


async def test_a_write_that_nobody_waits_for_any_more_ends_before_the_next_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    may_end = threading.Event()
    fsync = os.fsync

    def slow_fsync(descriptor: int) -> None:
        writes.append(descriptor)
        if len(writes) == 1:
            may_end.wait(PATIENCE_SECONDS)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_fsync)
    file = OffsetFile(tmp_path, "client", "billing")
    file.offsets[QUEUE] = 1
    first = asyncio.create_task(file.store({}))
    await until(lambda: len(writes) == 1)

    first.cancel()
    file.offsets[QUEUE] = 2
    second = asyncio.create_task(file.store({}))
    await asyncio.wait([first, second], timeout=0.1)  # either could go on now
    begun_meanwhile = len(writes)
    may_end.set()
    await asyncio.wait([first, second])

    assert begun_meanwhile == 1
    assert first.cancelled()
    assert second.exception() is None
    assert OffsetFile(tmp_path, "client", "billing").offsets == {QUEUE: 2}


async def test_an_offset_counts_for_its_topic_only(tmp_path: Path) -> None:
    file = OffsetFile(tmp_path, "client", "billing")
    assert not file.forget_another(QUEUE, "9f2c-1")
    file.offsets[QUEUE] = 17
    await file.store({})

    again = OffsetFile(tmp_path, "client", "billing")
    assert not again.forget_another(QUEUE, "9f2c-1")
    assert not again.forget_another(QUEUE, None)
    assert again.offsets == {QUEUE: 17}
    assert again.forget_another(QUEUE, "9f2c-77")
    assert again.offsets == {}
    assert not again.forget_another(QUEUE, "9f2c-77")


async def test_an_offset_of_an_earlier_version_is_taken_for_the_topic_of_now_aloud(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = OffsetFile(tmp_path, "client", "billing")
    file.offsets[QUEUE] = 17
    await file.store({})

    again = OffsetFile(tmp_path, "client", "billing")
    assert not again.forget_another(QUEUE, "9f2c-1")
    assert "does not contain the topic id for offset 17" in caplog.text
    assert again.forget_another(QUEUE, "9f2c-77")


@pytest.mark.parametrize("damage", [b"", b"{", b'{"offsets": [{"topic": "order\xff"}]}'])
async def test_where_the_file_is_damaged_the_one_before_it_counts(
    tmp_path: Path, damage: bytes
) -> None:
    file = OffsetFile(tmp_path, "client", "billing")
    for offset in (1, 2):
        file.offsets[QUEUE] = offset
        await file.store({})

    (tmp_path / "client" / "billing" / "offsets.json").write_bytes(damage)

    assert OffsetFile(tmp_path, "client", "billing").offsets == {QUEUE: 1}
