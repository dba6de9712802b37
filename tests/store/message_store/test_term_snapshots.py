"""A term begins with its epoch, and with all state in the last segment of the log."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from eruca.contract.errors import DiskFullError, NotMasterForSureError
from eruca.contract.properties import UNIQ_KEY, encode_properties
from eruca.contract.records import BLANK_SIZE_MIN, Record, encode_record
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.replication.epochs import Epoch
from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted, TopicPut
from eruca_broker.core.state.timers_events import TimersFired
from eruca_broker.store.log.segment import Segment
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.copied_stores import (
    CLOCK,
    assert_sound,
    began,
    change,
    confirmed,
    durable,
    feed,
    lead,
    log_of,
    opened_replica,
    pair,
    send,
)
from support.log_model import read_log
from support.message_stores import BOTH_MODES
from support.stores import all_answers, batch, delete_oldest_segments

pytestmark = pytest.mark.anyio


async def assert_from_last_segment(
    store: MessageStore, directory: Path, topics: Sequence[str]
) -> None:
    """Check that the last segment alone has the state, queue ends included."""
    copy = directory / "last segment"
    last = store._log.segments[-1].path
    (copy / "commitlog").mkdir(parents=True)
    shutil.copy(last, copy / "commitlog" / last.name)
    rebuilt = await opened_replica(copy)
    assert rebuilt.state.topics == store.state.topics
    for topic in topics:
        for queue_id in range(2):
            end = store.queues.range(topic, queue_id)[1]
            assert rebuilt.queues.range(topic, queue_id)[1] == end
    assert rebuilt.role.epochs().last == store.role.epochs().last
    await rebuilt.close()


@BOTH_MODES
async def test_an_empty_replica_leads_with_a_snapshot_behind_its_epoch(
    tmp_path: Path, mode: FlushMode
) -> None:
    store = await opened_replica(tmp_path / "one", mode)

    receipt = await lead(store, 1)

    assert receipt.log_offset == 0
    assert store.role.epochs().epochs == (Epoch(1, 0),)
    assert store.state.log_id
    [first, second] = read_log(store.directory)
    assert (b"epoch_began" in first.body, b"snapshot" in second.body) == (True, True)
    await store.close()
    store = await opened_replica(tmp_path / "one", mode)
    assert store.role.epochs().epochs == (Epoch(1, 0),)
    await store.close()


async def test_wherever_a_term_begins_the_last_segment_has_the_state(tmp_path: Path) -> None:
    """With room for the epoch's record in the segment, and without."""
    async with pair(tmp_path, FlushMode.ASYNC) as (one, two):
        await change(one, OffsetsCommitted("g", [CommittedOffset("orders", 0, 1)]))
        await confirmed(one)
        own, replica, rolled = one, two, []
        for epoch, room in enumerate((BLANK_SIZE_MIN, 9, 100, 250, 300, 350, 400, 450, 900), 2):
            await fill(own, room)
            await feed(replica, own)
            count, end = replica.segment_count, replica.log_max_offset
            own.role.follow()
            own, replica = replica, own

            leading = own.role.lead(began(epoch))
            await send(own, "y")

            rolled.append(own.segment_count > count)
            assert own.role.epochs().epochs[-1] == Epoch(epoch, end)
            assert own.role._begins_with_snapshot()
            await feed(replica, own, 1)
            await confirmed(own)
            await confirmed(replica)
            await leading
        assert rolled == sorted(rolled, reverse=True)
        assert {*rolled} == {True, False}
        assert log_of(one) == log_of(two)
        await assert_sound(replica, tmp_path)
        await assert_from_last_segment(own, tmp_path, ["orders"])


async def fill(store: MessageStore, room: int) -> None:
    """Leave so many bytes in the segment."""
    head = batch("orders", 0, [b""], keys="k1").size
    while (left := store._log.segments[-1].end_offset - store._log.end_offset) != room:
        is_last = left - room < 2 * head + 1_000
        await send(store, "x" * (left - room - head if is_last else 1_000))


async def test_a_replica_with_a_part_of_a_snapshot_leads_with_a_whole_one(tmp_path: Path) -> None:
    """Its run may have ended there."""
    async with pair(tmp_path, FlushMode.ASYNC) as (one, _):
        topics = [TopicPut(f"topic-{number:03d}", 1, 1, "rw") for number in range(60)]
        for first in range(0, 60, 20):
            await change(one, *topics[first : first + 20])
        await confirmed(one)
        while one.segment_count < 3:
            await send(one, "x" * 300)
        for bytes_max in (1, 1_500):
            replica = await opened_replica(tmp_path / f"replica {bytes_max}")
            base = one._log.segments[-1].base_offset
            while replica.log_max_offset <= base:
                begin = replica.log_max_offset
                run = b"".join(one.log.run(begin, bytes_max))
                await replica.role.copy(memoryview(run), begin)
            is_whole = replica.role._begins_with_snapshot()

            await lead(replica, 2)

            assert not is_whole
            assert replica.role._begins_with_snapshot()
            assert replica._snapshots.latest_offset > base
            await assert_from_last_segment(replica, tmp_path / f"{bytes_max}", ["orders"])
            await replica.close()


async def test_a_new_master_knows_the_ends_of_queues_whose_messages_have_expired(
    tmp_path: Path,
) -> None:
    """Its log begins later, and the snapshot that names them is not visible yet."""
    async with pair(tmp_path, FlushMode.ASYNC) as (one, _):
        await send(one, *"abc", queue_id=1)
        await confirmed(one)
        while one.segment_count < 3:
            await send(one, "x" * 700)
        await confirmed(one)
        assert await delete_oldest_segments(one, 1)
        new = await opened_replica(tmp_path / "new")
        new.role.begin_at(one.log_min_offset, segment_bytes=one.segment_bytes)
        await feed(new, one, 4_000)
        assert new.visible_offset == new.log_min_offset

        leading = new.role.lead(began(2))
        sent = await send(new, "d", queue_id=1)
        await confirmed(new)

        await leading
        assert (await sent[0]).queue_offset == 3
        assert new.queues.range("orders", 1) == (3, 4)
        await new.close()


async def test_a_snapshot_that_a_restart_divided_does_not_hold_up_retention(tmp_path: Path) -> None:
    async with pair(tmp_path, FlushMode.ASYNC) as (one, _):
        topics = [TopicPut(f"topic-{number:03d}", 1, 1, "rw") for number in range(60)]
        for first in range(0, 60, 20):
            await change(one, *topics[first : first + 20])
        await confirmed(one)
        while one.segment_count < 4:
            await send(one, "x" * 700)
        await confirmed(one)
        base = one._log.segments[-1].base_offset
        ended = await opened_replica(tmp_path / "new")
        while (before := ended.log_max_offset) <= base:
            await ended.role.copy(memoryview(b"".join(one.log.run(before, 1))), before)
        await ended.close()

        new = await opened_replica(tmp_path / "new")
        latest = new._snapshots.latest_offset
        assert 0 < latest < base < before == new.log_max_offset
        await feed(new, one)
        await confirmed(new)
        assert new._snapshots.latest_offset == latest  # until a whole one follows
        assert all_answers(new) == all_answers(one)
        await new.close()


def delayed(text: str, due_ms: int) -> tuple[str, int, bytes]:
    raw = encode_record(
        Record(topic="orders", body=text.encode(), properties=encode_properties({UNIQ_KEY: text}))
    )
    wait = Wait(0, due_ms)
    return (*wait.place, waiting(raw, wait, Destination("orders", 0)))


async def test_a_snapshot_of_a_new_master_has_the_timers_of_what_was_left(tmp_path: Path) -> None:
    """Those set in it, but not those that it also ended."""
    async with pair(tmp_path, FlushMode.ASYNC) as (one, two):
        due = CLOCK.now_ms() + 60_000
        places = []
        for text in ("early", "ended early", "fired", "kept"):
            topic, queue_id, record = delayed(text, due)
            waiting_ = one.append(batch_of_records(topic, queue_id, [record]))
            if text == "ended early":
                await confirmed(one)
                await feed(two, one)
                await confirmed(two)
            else:
                one.role.confirm(await durable(one))
            places.append((await waiting_).log_offset)
        await asyncio.sleep(0)
        for timer_id in (places[1], places[2]):
            one.timers.take(t for t in list(one.timers.following(None)) if t.id == timer_id)
            fired = one.append_group(
                [batch("orders", 0, [b"fired"])],
                head=TimersFired([timer_id], batch("orders", 0, [b"fired"]).size),
            )
            await confirmed(one)
            await fired
        await feed(two, one)
        assert {row[1] for row in two.timers.rows().tolist()} == {places[0], places[1]}
        await fill(one, 100)
        await feed(two, one)

        count = two.segment_count
        await lead(two, 2)

        assert two.segment_count > count
        assert {row[1] for row in two.timers.rows().tolist()} == {places[0], places[3]}
        await assert_sound(two, tmp_path)


@BOTH_MODES
@pytest.mark.parametrize("name", ["create", "write"])
async def test_a_term_that_has_no_room_has_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: FlushMode, name: str
) -> None:
    """Rule 3: nothing is appended without its epoch."""

    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with pair(tmp_path, mode) as (one, two):
        await fill(one, 100)
        await feed(two, one)
        before, end = log_of(two), two.log_max_offset
        with monkeypatch.context() as disk:
            disk.setattr(Segment, name, full)
            with pytest.raises(DiskFullError):
                await two.role.lead(began(2))
            with pytest.raises(DiskFullError):
                two.append(batch("orders", 0, [b"x"]))

        await two.upkeep.probe_disk()
        assert two.role.is_replica
        assert two.refusal is None
        assert (log_of(two), two.log_max_offset, two.role.epochs().last) == (before, end, 1)
        with pytest.raises(NotMasterForSureError):
            two.append(batch("orders", 0, [b"x"]))
        await lead(two, 2)
        await assert_sound(two, tmp_path)
