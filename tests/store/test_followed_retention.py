"""A replica deletes what its master no longer has, but nothing that it still needs itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eruca.contract.properties import UNIQ_KEY, encode_properties
from eruca.contract.records import Record, encode_record
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.loops.retention import FollowedRetention
from eruca_broker.processors.timers import Timers
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.stores import batch, delete_oldest_segments, small_settings

pytestmark = pytest.mark.anyio

CLOCK = ManualClock()
BYTES_MAX = 1 << 20


async def opened(directory: Path) -> MessageStore:
    settings = replace(small_settings(), is_replica=True)
    return await MessageStore.open(directory, settings, CLOCK)


async def fill(master: MessageStore) -> None:
    """Continue in another segment."""
    count = master.segment_count
    while master.segment_count == count:
        await master.append(batch("orders", 0, [b"x" * 2_000]))


async def copy_all(replica: MessageStore, master: MessageStore) -> None:
    """Let a replica copy all that its master has, which is confirmed."""
    while run := master.log.run(at := replica.log_max_offset, BYTES_MAX):
        await replica.role.copy(memoryview(b"".join(run)), at)
    replica.role.confirm(master.confirmed_offset)


async def test_a_replica_far_behind_keeps_what_its_master_has_carried_forward(
    tmp_path: Path,
) -> None:
    master, replica = await opened(tmp_path / "master"), await opened(tmp_path / "replica")
    master.role.on_durable = master.role.confirm
    await master.role.lead(EpochBegan(1, 1, "one", "10.0.0.1:10911", 0))
    wait = Wait(deliver_at_ms=CLOCK.now_ms() + 3_600_000)
    properties = encode_properties({UNIQ_KEY: "late"})
    record = encode_record(Record(topic="orders", body=b"late", properties=properties))
    raw = waiting(record, wait, Destination("orders", 0))
    set_at = (await master.append(batch_of_records(*wait.place, [raw]))).log_offset
    await fill(master)
    await fill(master)
    await copy_all(replica, master)
    assert [row[1] for row in replica.timers.rows().tolist()] == [set_at]

    await fill(master)
    await Timers(master, CLOCK).carry_forward(master.log_max_offset)
    await fill(master)
    await delete_oldest_segments(master, 9)
    assert master.log_min_offset > replica.log_max_offset
    retention = FollowedRetention(replica, lambda: master.log_min_offset)
    await retention.step()
    assert replica.log_min_offset <= set_at, "it has not copied the carried one"
    assert replica.log.record(set_at).body == b"late"

    for store in (replica, master):
        await store.close()
