"""The message store: what is deleted when it is old."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.contract.wire import PullStatus
from support.message_stores import ORDERS, opened, send
from support.stores import delete_oldest_segments

pytestmark = pytest.mark.anyio


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

    found = store.log.by_key("orders", "k", count_max=1_000, begin_ms=0, end_ms=2**62)

    kept = [receipt.log_offset for receipt in receipts if receipt.log_offset >= min_offset]
    assert sorted(record.log_offset for record in found) == kept
    await store.close()
