"""The message store when no more files can be opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.contract.errors import UnavailableError
from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_broker.store.message_store import MessageStore
from support.limits import open_files_limit
from support.message_stores import BOTH_MODES, ORDERS, bodies, found_by_key, opened, send
from support.stores import delete_oldest_segments

pytestmark = pytest.mark.anyio


@BOTH_MODES
async def test_want_of_open_files_is_over_once_there_are_some(
    store: MessageStore, tmp_path: Path
) -> None:
    await store.upkeep.checkpoint()
    before = read_checkpoint(tmp_path)
    await send(store, b"first", queue_id=0)

    with open_files_limit(0):
        await send(store, b"hidden", queue_id=3)  # in the log; its queue cannot be made
        with pytest.raises(UnavailableError, match="Too many open files") as refused:
            await send(store, b"refused", queue_id=3)
        await store.upkeep.probe_disk()
        with pytest.raises(OSError, match="Too many open files"):
            await store.upkeep.checkpoint()
    assert type(refused.value) is type(store.refusal) is UnavailableError
    assert "ulimit -n" in (refused.value.fix or "")

    await store.upkeep.probe_disk()
    await send(store, b"after", queue_id=3)

    assert bodies(store, 3) == [b"hidden", b"after"]
    await store.upkeep.checkpoint()
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
        await store.upkeep.checkpoint()

    await store.upkeep.checkpoint()

    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.projected_offset == store.log_max_offset
    await store.close()


async def test_no_queue_leads_to_what_retention_has_deleted_while_files_were_short(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    for number in range(160):
        await send(store, b"%d" % number * 100, queue_id=number % 4)
    await store.upkeep.checkpoint()
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
