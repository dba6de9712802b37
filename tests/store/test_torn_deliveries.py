"""A power cut within the write that makes a delivery a dead letter: both have happened, or none."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from eruca.contract.names import dead_letter_topic
from eruca_broker.core.state.group_events import GroupPut, GroupSettings
from eruca_broker.core.state.lease_events import (
    DeliveriesLeased,
    DeliveriesNacked,
    HeldLease,
    LeasedMessage,
    QueueNacks,
)
from eruca_broker.core.state.topic_events import TopicPut
from eruca_broker.processors.deliveries.letters import DeadDelivery, letter_batches
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.log_model import read_log
from support.stores import abandon, batch, small_settings

pytestmark = pytest.mark.anyio

SETTINGS = small_settings(segment_bytes=8 * 1024)
LETTERS = dead_letter_topic("g")


async def test_no_tear_parts_a_dead_letter_from_the_end_of_its_delivery(tmp_path: Path) -> None:
    """Exhaustive over the tear, in steps of a few bytes."""
    original = tmp_path / "original"
    began, ended = await given_up(original)
    [log] = (original / "commitlog").iterdir()
    seen = set()
    for size in [*range(began, ended, 13), ended]:
        copy = Path(shutil.copytree(original, tmp_path / "copy"))
        with (copy / "commitlog" / log.name).open("r+b") as file:
            file.seek(size)
            file.write(bytes(ended - size))  # never reached the disk; the file's length did

        store = await MessageStore.open(copy, SETTINGS, ManualClock())
        unfinished = store.state.leases.unfinished_count
        letters = store.queues.range(LETTERS, 0)[1]
        await store.close()
        shutil.rmtree(copy)

        assert (unfinished, letters) in {(1, 0), (0, 1)}, size
        assert (unfinished == 0) == (size == ended), size
        seen.add(unfinished)
    assert seen == {0, 1}


async def given_up(directory: Path) -> tuple[int, int]:
    """Leave a store whose last write, not flushed, ends a delivery; return where it lies."""
    store = await MessageStore.open(directory, SETTINGS, ManualClock())
    await store.change(TopicPut("orders", 1, 1, "rw"))
    await store.change(TopicPut(LETTERS, 1, 1, "rw"))
    await store.change(GroupPut("g", GroupSettings(start="earliest"), 1))
    await store.append(batch("orders", 0, [b"poison"], unique_key="A" * 32))
    lease = DeliveriesLeased("g", "orders", 0, 0, 1, 99, [LeasedMessage(0, 1)])
    fence = await store.change(lease)
    await store.upkeep.checkpoint()
    began = store.log_max_offset
    read = store.queues.read("orders", 0, 0, count_max=1, bytes_max=1)
    letters = letter_batches(
        "g",
        [DeadDelivery(("orders", 0), memoryview(read.slices[0]), 1)],
        now_ms=0,
        host=store.settings.store_host,
    )
    nacked = DeliveriesNacked("g", [QueueNacks("orders", 0, [], [HeldLease(0, fence)])])
    size = sum(one.size for one in letters)
    await store.append_group(letters, msgspec.structs.replace(nacked, group_size=size))
    assert store.state.leases.unfinished_count == 0
    ended = store.log_max_offset
    await abandon(store)
    assert [record.topic for record in read_log(directory)][-1] == LETTERS
    return began, ended
