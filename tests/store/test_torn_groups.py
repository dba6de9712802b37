"""A group of records is whole or not there, wherever a power cut has torn it.

Exhaustive over the records and almost over the bytes: the cut is made at every seventh byte.
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from eruca.contract.properties import TAGS, encode_properties
from eruca.contract.records import Record, encode_record
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.state.timers_events import DeadLettersRedriven
from eruca_broker.core.state.topic_events import TopicPut
from eruca_broker.processors.timers import Timers
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.log_model import read_log
from support.stores import abandon, batch, delete_oldest_segments, small_settings, without_log_lines
from support.torn_logs import cut_copy

SETTINGS = small_settings(segment_bytes=32 * 1024)
COUNT = 3


async def filled(directory: Path, clock: ManualClock) -> MessageStore:
    """Return a store with timers that are due, all of it flushed."""
    store = await MessageStore.open(directory, SETTINGS, clock)
    await store.change(TopicPut("orders", 2, 2, "rw"))
    for number in range(COUNT):
        # With a property: the last bytes of a record without one are zeros, whole or cut.
        properties = encode_properties({TAGS: "x"})
        raw = encode_record(Record(topic="orders", body=b"%d" % number, properties=properties))
        wait = Wait(deliver_at_ms=clock.now_ms() + number)
        record = waiting(raw, wait, Destination("orders", number % 2))
        await store.append(batch_of_records(*wait.place, [record]))
    await store.upkeep.checkpoint()
    clock.advance(1)
    return store


def test_a_timer_is_pending_or_its_message_delivered(tmp_path: Path) -> None:
    async def work() -> None:
        clock = ManualClock()
        store = await filled(tmp_path / "whole", clock)
        begin = store.log_max_offset
        assert await Timers(store, clock).fire() == COUNT
        end = store.log_max_offset
        await abandon(store)
        for offset in [*range(begin, end, 7), end]:
            cut_copy(tmp_path / "whole", tmp_path / "cut", offset)

            store = await MessageStore.open(tmp_path / "cut", SETTINGS, clock)

            delivered = sum(store.queues.range("orders", queue_id)[1] for queue_id in (0, 1))
            is_whole = offset == end
            assert (len(store.timers), delivered) == ((0, COUNT) if is_whole else (COUNT, 0))
            assert await Timers(store, clock).fire() == (0 if is_whole else COUNT)
            await store.close()
            bodies = [r.body for r in read_log(tmp_path / "cut") if r.topic == "orders"]
            assert sorted(bodies) == [b"0", b"1", b"2"]

    with without_log_lines():
        asyncio.run(work())


def test_a_dead_letter_is_redriven_or_not_at_all(tmp_path: Path) -> None:
    async def work() -> None:
        clock = ManualClock()
        store = await filled(tmp_path / "whole", clock)
        begin = store.log_max_offset
        letters = [batch("orders", queue_id, [b"again"], tag="x") for queue_id in (0, 1)]
        size = sum(letter.size for letter in letters)
        await store.append_group(letters, DeadLettersRedriven("g", [4, 5], 17, size))
        end = store.log_max_offset
        await abandon(store)
        for offset in [*range(begin, end, 7), end]:
            cut_copy(tmp_path / "whole", tmp_path / "cut", offset)

            store = await MessageStore.open(tmp_path / "cut", SETTINGS, clock)

            delivered = sum(store.queues.range("orders", queue_id)[1] for queue_id in (0, 1))
            known = [store.state.redriven.redriven_at("g", letter) for letter in (4, 5)]
            is_whole = offset == end
            assert (known, delivered) == (([17, 17], 2) if is_whole else ([None, None], 0))
            await store.close()

    with without_log_lines():
        asyncio.run(work())


def test_keys_kept_on_a_full_disk_are_forgotten_with_the_torn_group_they_are_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def write(descriptor: int, data: bytes, position: int) -> int:
        if tmp_path / "cut" / "index" in Path(f"/proc/self/fd/{descriptor}").readlink().parents:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data, position)

    async def work() -> None:
        clock = ManualClock()
        store = await filled(tmp_path / "whole", clock)
        kept = await store.append(batch("orders", 0, [b"kept"], tag="x", keys="k"))
        letters = [batch("orders", 1, [b"again"], tag="x", keys="k") for _ in range(2)]
        size = sum(letter.size for letter in letters)
        await store.append_group(letters, DeadLettersRedriven("g", [4, 5], 17, size))
        end = store.log_max_offset
        await abandon(store)
        cut_copy(tmp_path / "whole", tmp_path / "cut", end - 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", write)

            store = await MessageStore.open(tmp_path / "cut", SETTINGS, clock)

        await store.upkeep.probe_disk()
        sent = await store.append(batch("orders", 0, [bytes(200)], tag="x", keys="k"))
        assert sent.log_offset < end - letters[-1].size  # where the first letter had been
        for _ in range(2):  # before the index is up to date, and after that
            found = store.log.by_key("orders", "k", count_max=9, begin_ms=0, end_ms=2**62)
            assert [r.log_offset for r in found] == [sent.log_offset, kept.log_offset]
            await store.upkeep.checkpoint()
        assert {p.failure for p in store.projections()} == {None}
        await store.close()

    with without_log_lines():
        asyncio.run(work())


def test_retention_waits_until_what_it_carried_forward_is_durable(tmp_path: Path) -> None:
    async def work() -> None:
        clock = ManualClock()
        store = await filled(tmp_path / "whole", clock)
        while store.segment_count == 1:
            await store.append(batch("orders", 0, [bytes(3_000)]))
        await store.upkeep.flush()
        await Timers(store, clock).carry_forward(store.retention.segment_ends()[0])
        carried = store.timers.oldest_id()

        needed_from = await store.retention.needed_from()

        assert carried is not None
        assert store.retention.segment_ends()[0] <= needed_from <= carried < store.flushed_offset
        assert len(await delete_oldest_segments(store, 9)) == 1
        await store.close()

    with without_log_lines():
        asyncio.run(work())
