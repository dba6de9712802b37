"""A store changes its role in place: a replica becomes master of an epoch, a master follows.

Two stores copy each other's logs, in both flush modes. Nothing is confirmed but by the test.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from eruca.contract.errors import (
    DiskFullError,
    NotMasterForSureError,
    OutcomeUnknownError,
    StoreFailedError,
)
from eruca.contract.properties import UNIQ_KEY, encode_properties
from eruca.contract.records import BLANK_SIZE_MIN, Record, encode_record
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.log.copied_run import RefusedRunError
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.replication.epochs import Epoch
from eruca_broker.core.state.events import (
    CommittedOffset,
    EpochBegan,
    Event,
    OffsetsCommitted,
    StateSnapshot,
    TopicDeleted,
    TopicPut,
)
from eruca_broker.core.state.timers_events import TimersFired
from eruca_broker.store.log.receipts import Receipt
from eruca_broker.store.log.segment import Segment
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.clocks import ManualClock
from support.limits import file_size_limit
from support.log_model import LogModel, read_log
from support.message_stores import BOTH_MODES, ORDERS, Flushes, bodies
from support.stores import (
    all_answers,
    batch,
    delete_oldest_segments,
    small_settings,
    without_log_lines,
)
from support.waiting import until

pytestmark = pytest.mark.anyio

CLOCK = ManualClock()


@pytest.fixture(autouse=True)
def _without_log_lines() -> Iterator[None]:
    with without_log_lines():
        yield


def began(epoch: int) -> EpochBegan:
    return EpochBegan(epoch, 1, "9f2c51d07ab3e846", f"10.0.0.{epoch}:10911", CLOCK.now_ms())


def never(_: int) -> None:
    """Confirm nothing by itself."""


async def opened(directory: Path, mode: FlushMode = FlushMode.ASYNC) -> MessageStore:
    settings = replace(small_settings(flush_mode=mode), is_replica=True)
    store = await MessageStore.open(directory, settings, CLOCK)
    store.on_durable = never
    return store


async def durable(store: MessageStore) -> int:
    """Return the log's end once all of it is durable."""
    await until(lambda: store._log.end_offset == store.log_max_offset == store.durable_offset)
    return store.log_max_offset


async def confirmed(store: MessageStore) -> None:
    store.confirm(await durable(store))
    assert store.confirmed_offset == store.log_max_offset


async def lead(store: MessageStore, epoch: int) -> Receipt:
    leading = store.lead(began(epoch))
    await confirmed(store)
    return await leading


async def send(
    store: MessageStore, *texts: str, queue_id: int = 0
) -> list[asyncio.Future[Receipt]]:
    sent = [store.append(batch("orders", queue_id, [t.encode()], keys="k1")) for t in texts]
    await durable(store)
    return sent


async def change(store: MessageStore, *events: Event) -> Sequence[asyncio.Future[int]]:
    changing = [asyncio.ensure_future(store.change(event)) for event in events]
    await asyncio.sleep(0)
    await durable(store)
    return changing


async def feed(replica: MessageStore, master: MessageStore, bytes_max: int = 700) -> None:
    """Have a replica hold all that its master has written."""
    while run := b"".join(master.log_run(offset := replica.log_max_offset, bytes_max)):
        await replica.copy(memoryview(run), offset)
    assert replica.log_max_offset == replica.durable_offset == master.log_max_offset


def log_of(store: MessageStore) -> dict[str, bytes]:
    paths = sorted((store.directory / "commitlog").iterdir())
    logs = {path.name: path.read_bytes() for path in paths}
    return {name: data for name, data in logs.items() if data.strip(b"\0")}


@asynccontextmanager
async def pair(
    directory: Path, mode: FlushMode
) -> AsyncIterator[tuple[MessageStore, MessageStore]]:
    """Yield a master of epoch 1 and its replica, with a topic, equal and confirmed."""
    one, two = await opened(directory / "one", mode), await opened(directory / "two", mode)
    await lead(one, 1)
    await change(one, ORDERS)
    await confirmed(one)
    await feed(two, one)
    await confirmed(two)
    yield one, two
    for store in (one, two):
        await store.close()


async def assert_sound(store: MessageStore, directory: Path) -> None:
    """Check the log by itself, and that it leads to the same answers without any other file."""
    LogModel(read_log(store.directory))
    answers, timers = all_answers(store), sorted(map(tuple, store.timers.rows().tolist()))
    copy = directory / "from the log"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(store.directory / "commitlog", copy / "commitlog")
    rebuilt = await opened(copy)
    assert all_answers(rebuilt) == answers
    assert sorted(map(tuple, rebuilt.timers.rows().tolist())) == timers
    assert rebuilt.epochs() == store.epochs()
    await rebuilt.close()


async def assert_from_last_segment(
    store: MessageStore, directory: Path, topics: Sequence[str]
) -> None:
    """Check that the last segment alone has the state, queue ends included."""
    copy = directory / "last segment"
    last = store._log.segments[-1].path
    (copy / "commitlog").mkdir(parents=True)
    shutil.copy(last, copy / "commitlog" / last.name)
    rebuilt = await opened(copy)
    assert rebuilt.state.topics == store.state.topics
    for topic in topics:
        for queue_id in range(2):
            end = store.queues.range(topic, queue_id)[1]
            assert rebuilt.queues.range(topic, queue_id)[1] == end
    assert rebuilt.epochs().last == store.epochs().last
    await rebuilt.close()


@BOTH_MODES
async def test_a_new_master_confirms_what_was_left_only_with_its_epoch(
    tmp_path: Path, mode: FlushMode
) -> None:
    """Its queue offsets continue at the end of the log, not at what is visible."""
    async with pair(tmp_path, mode) as (one, two):
        visible = two.visible_offset
        left = await send(one, *"abcde")
        await feed(two, one)
        end = two.log_max_offset

        leading = two.lead(began(2))
        sent = await send(two, "f")

        assert not two.is_replica
        assert two.epochs().epochs == (*one.epochs().epochs, Epoch(2, end))
        epoch_end = next(two._writer.unpublished()).log_offset  # of the first that is left
        for offset in (visible, epoch_end, end, end + 1):
            two.confirm(offset)
            assert two.visible_offset == visible
        assert not leading.done()
        assert two.state.epochs.last == 1

        await confirmed(two)
        assert (await leading).log_offset == end
        assert (await sent[0]).queue_offset == 5
        assert bodies(two) == [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert two.state.epochs == two.epochs()
        assert not any(future.done() for future in left)
        one.follow()
        await feed(one, two)
        assert log_of(one) == log_of(two)
        await confirmed(one)
        assert all_answers(one) == all_answers(two)
        await assert_sound(one, tmp_path)


@BOTH_MODES
async def test_roles_go_back_and_forth_and_both_logs_stay_equal(
    tmp_path: Path, mode: FlushMode
) -> None:
    async with pair(tmp_path, mode) as (one, two):
        master, replica = one, two
        for epoch in range(2, 12):
            await send(master, *("x" * 300 for _ in range(11)), queue_id=epoch % 2)
            await feed(replica, master)
            if epoch % 3:
                await confirmed(master)
                replica.confirm(master.confirmed_offset)
            await send(master, "y" * 90)
            await feed(replica, master)

            master.follow()
            master, replica = replica, master
            leading = master.lead(began(epoch))
            await durable(master)
            await feed(replica, master)
            assert log_of(master) == log_of(replica)
            await confirmed(master)
            await confirmed(replica)
            await leading
            assert all_answers(master) == all_answers(replica)
            assert master.epochs() == replica.epochs()

        assert len(log_of(one)) > 1
        await assert_sound(one, tmp_path)
        await assert_sound(two, tmp_path)
        assert one.queues.range("orders", 0)[1] + one.queues.range("orders", 1)[1] == 10 * 12


@BOTH_MODES
async def test_the_calls_of_a_master_that_follows_end_with_what_is_known(
    tmp_path: Path, mode: FlushMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, mode) as (one, two):
        waiting = await send(one, "durable")
        await feed(two, one)
        flushes = Flushes(monkeypatch)
        flushes.may_end.clear()
        waiting.append(one.append(batch("orders", 0, [b"flushing"])))
        await until(lambda: one.log_max_offset == one._log.end_offset)
        written = one.log_max_offset
        taken = [one.append(batch("orders", 0, [b"accepted"]))]
        group = one.append_group([batch("orders", queue_id, [b"accepted"]) for queue_id in (0, 1)])

        one.follow()

        assert one.is_replica
        assert one._log.end_offset == one.log_max_offset == written
        flushes.may_end.set()
        outcomes = await asyncio.gather(*waiting, *taken, group, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [
            *[OutcomeUnknownError] * 2, *[NotMasterForSureError] * 2
        ]  # fmt: skip
        with pytest.raises(NotMasterForSureError):
            one.append(batch("orders", 0, [b"refused"]))
        assert not bodies(one)

        await lead(two, 2)
        assert bodies(two) == [b"durable"]
        one.confirm(await durable(one))
        assert bodies(one) == [b"durable", b"flushing"]


async def test_what_was_taken_back_leaves_its_queue_offsets_to_others(tmp_path: Path) -> None:
    async with pair(tmp_path, FlushMode.ASYNC) as (one, two):
        await confirmed(one)
        taken = one.append(batch("orders", 1, [b"never"]))
        one.follow()
        with pytest.raises(NotMasterForSureError):
            await taken

        await lead(two, 2)
        sent = await send(two, "first", queue_id=1)
        await confirmed(two)
        assert (await sent[0]).queue_offset == 0
        await feed(one, two)
        await confirmed(one)
        assert bodies(one, 1) == [b"first"]
        assert log_of(one) == log_of(two)


@BOTH_MODES
async def test_an_empty_replica_leads_with_a_snapshot_behind_its_epoch(
    tmp_path: Path, mode: FlushMode
) -> None:
    store = await opened(tmp_path / "one", mode)

    receipt = await lead(store, 1)

    assert receipt.log_offset == 0
    assert store.epochs().epochs == (Epoch(1, 0),)
    assert store.state.log_id
    [first, second] = read_log(store.directory)
    assert (b"epoch_began" in first.body, b"snapshot" in second.body) == (True, True)
    await store.close()
    store = await opened(tmp_path / "one", mode)
    assert store.epochs().epochs == (Epoch(1, 0),)
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
            own.follow()
            own, replica = replica, own

            leading = own.lead(began(epoch))
            await send(own, "y")

            rolled.append(own.segment_count > count)
            assert own.epochs().epochs[-1] == Epoch(epoch, end)
            assert own._begins_with_snapshot()
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
            replica = await opened(tmp_path / f"replica {bytes_max}")
            base = one._log.segments[-1].base_offset
            while replica.log_max_offset <= base:
                begin = replica.log_max_offset
                run = b"".join(one.log_run(begin, bytes_max))
                await replica.copy(memoryview(run), begin)
            is_whole = replica._begins_with_snapshot()

            await lead(replica, 2)

            assert not is_whole
            assert replica._begins_with_snapshot()
            assert replica._snapshots.latest_offset > base
            await assert_from_last_segment(replica, tmp_path / f"{bytes_max}", ["orders"])
            await replica.close()


@BOTH_MODES
async def test_topics_deleted_and_made_again_in_what_was_left_begin_at_offset_0(
    tmp_path: Path, mode: FlushMode
) -> None:
    async with pair(tmp_path, mode) as (one, two):
        await send(one, *"abc")
        await confirmed(one)
        await feed(two, one)
        await confirmed(two)
        visible = one.visible_offset
        for round_ in range(3):
            changing = await change(one, TopicDeleted("orders"))
            await feed(two, one, 1)
            assert two.visible_offset == visible
            one.confirm(one.durable_offset)
            await asyncio.gather(*changing)
            await change(one, ORDERS)
            await confirmed(one)
            sent = await send(one, *("d" * (round_ + 1)))
            await feed(two, one, 1)
            await confirmed(one)
            assert [(await it).queue_offset for it in sent] == list(range(round_ + 1))

        assert two.queues.range("orders", 0) == (0, 3)  # the replica has confirmed none of it
        one.follow()
        leading = two.lead(began(2))
        changing = await change(two, OffsetsCommitted("g", []))
        ends = queue_ends(two)
        await confirmed(two)
        await asyncio.gather(leading, *changing)
        assert ends == {("orders", 0): 3}
        [receipt] = await send(two, "e")
        await confirmed(two)
        assert (await receipt).queue_offset == 3
        await assert_sound(two, tmp_path)


@BOTH_MODES
async def test_runs_that_follow_each_other_unconfirmed_are_visible_and_passed_on_as_wholes(
    tmp_path: Path, mode: FlushMode
) -> None:
    """Rule 4: nothing shows which of their batches the master appended together."""
    async with pair(tmp_path, mode) as (one, two):
        begin = two.visible_offset
        ends = [begin]
        for _ in range(3):
            sent = [*await send(one, *"ab"), *await send(one, *"cd", queue_id=1)]
            await feed(two, one, 10**6)
            ends.append(two.log_max_offset)
        assert len(list(two._writer.unpublished())) == 3 * 2  # one for each queue of a run
        three = await opened(tmp_path / "three", mode)
        while three.log_max_offset < begin:
            at = three.log_max_offset
            await three.copy(memoryview(b"".join(one.log_run(at, 10**6))), at)

        for offset in range(begin, ends[-2]):
            two.confirm(offset)
            assert two.visible_offset == max(end for end in ends if end <= offset)
        one.follow()
        await asyncio.gather(*sent, return_exceptions=True)
        leading = two.lead(began(2))
        await durable(two)
        run = b"".join(two.log_run(ends[-2], 1))
        assert ends[-2] + len(run) == ends[-1]

        await feed(three, two, 1)
        await confirmed(two)
        await leading
        await confirmed(three)
        assert all_answers(two) == all_answers(three)
        await three.close()


async def test_a_replica_that_has_confirmed_nothing_yet_knows_whose_log_it_has(
    tmp_path: Path,
) -> None:
    one, other = await opened(tmp_path / "one"), await opened(tmp_path / "other")
    replica = await opened(tmp_path / "replica")
    for master in (one, other):
        await lead(master, 1)
    await feed(replica, one)
    await change(other, ORDERS)
    await confirmed(other)
    while other.segment_count == 1:
        await send(other, "x" * 900)
    await confirmed(other)
    end = replica.log_max_offset
    run = b"".join(other.log_run(end, 10**6))

    with pytest.raises(RefusedRunError, match=f"a snapshot of log {one.state.log_id}, found one"):
        await replica.copy(memoryview(run), end)

    assert replica.log_max_offset == end
    for store in (one, other, replica):
        await store.close()


@BOTH_MODES
async def test_a_replica_confirms_nothing_by_itself_with_a_hook_or_without(
    tmp_path: Path, mode: FlushMode
) -> None:
    """Rule 7."""
    async with pair(tmp_path, mode) as (one, two):
        visible = two.visible_offset
        two.on_durable = None
        await send(one, "a")
        await feed(two, one)
        assert two.visible_offset == visible

        await confirmed(two)
        await confirmed(one)
        assert bodies(two) == bodies(one) == [b"a"]


async def test_a_former_master_shows_what_another_one_confirms_of_its_predecessors(
    tmp_path: Path,
) -> None:
    """Its own epoch, which is not confirmed, no longer holds that up."""
    async with pair(tmp_path, FlushMode.ASYNC) as (one, two):
        [sent] = await send(one, "a")
        await feed(two, one)
        end = two.log_max_offset
        leading = two.lead(began(2))
        await durable(two)
        two.confirm(end)
        assert not bodies(two)

        two.follow()
        two.confirm(end)

        assert bodies(two) == [b"a"]
        assert two.visible_offset == end < two.log_max_offset
        one.follow()
        assert [type(it) for it in await asyncio.gather(sent, leading, return_exceptions=True)] == [
            OutcomeUnknownError
        ] * 2


@BOTH_MODES
async def test_a_run_that_could_not_be_written_leaves_the_queue_offsets_as_they_were(
    tmp_path: Path, mode: FlushMode
) -> None:
    """It ends a topic, and begins another of its name."""
    async with pair(tmp_path, mode) as (one, two):
        await send(one, *"abc")
        await confirmed(one)
        await feed(two, one)
        await confirmed(two)
        for event in (TopicDeleted("orders"), ORDERS):
            await change(one, event)
            await confirmed(one)
        await send(one, "d")
        await send(one, "e", queue_id=1)
        begin = two.log_max_offset
        whole = b"".join([*one.log_run(begin, 10**6), *one.log_run(one.visible_offset, 10**6)])
        before = log_of(two), queue_ends(two), all_answers(two)
        assert before[1] == {("orders", 0): 3}

        with file_size_limit(0), pytest.raises(DiskFullError):
            await two.copy(memoryview(whole), begin)

        await two.probe_disk()
        assert not two.is_leaving("orders")
        assert (log_of(two), queue_ends(two), all_answers(two)) == before
        await two.copy(memoryview(whole), begin)
        assert queue_ends(two) == {("orders", 0): 1, ("orders", 1): 1}
        await confirmed(one)
        await confirmed(two)
        assert all_answers(one) == all_answers(two)


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
        new = await opened(tmp_path / "new")
        new.begin_at(one.log_min_offset, segment_bytes=one.segment_bytes)
        await feed(new, one, 4_000)
        assert new.visible_offset == new.log_min_offset

        leading = new.lead(began(2))
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
        ended = await opened(tmp_path / "new")
        while (before := ended.log_max_offset) <= base:
            await ended.copy(memoryview(b"".join(one.log_run(before, 1))), before)
        await ended.close()

        new = await opened(tmp_path / "new")
        latest = new._snapshots.latest_offset
        assert 0 < latest < base < before == new.log_max_offset
        await feed(new, one)
        await confirmed(new)
        assert new._snapshots.latest_offset == latest  # until a whole one follows
        assert all_answers(new) == all_answers(one)
        await new.close()


def queue_ends(store: MessageStore) -> dict[tuple[str, int], int]:
    """Return what a snapshot would say now of the queues of messages."""
    ends: dict[tuple[str, int], int] = {}
    for _, part in store._snapshot_batches():
        assert isinstance(part, StateSnapshot)
        ends |= {(end.topic, end.queue_id): end.next_offset for end in part.queue_ends}
    return {key: end for key, end in ends.items() if key[0] == "orders"}


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
                one.confirm(await durable(one))
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
                await two.lead(began(2))
            with pytest.raises(DiskFullError):
                two.append(batch("orders", 0, [b"x"]))

        await two.probe_disk()
        assert two.is_replica
        assert two.refusal is None
        assert (log_of(two), two.log_max_offset, two.epochs().last) == (before, end, 1)
        with pytest.raises(NotMasterForSureError):
            two.append(batch("orders", 0, [b"x"]))
        await lead(two, 2)
        await assert_sound(two, tmp_path)


async def test_a_master_of_a_moment_ago_leads_while_its_flush_is_in_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, FlushMode.SYNC) as (one, two):
        flushes = Flushes(monkeypatch)
        flushes.may_end.clear()
        sent = one.append(batch("orders", 0, [b"a"]))
        await until(lambda: one.log_max_offset == one._log.end_offset)
        one.follow()

        leading = one.lead(began(2))
        later = one.append(batch("orders", 0, [b"b"]))
        flushes.may_end.set()
        await confirmed(one)

        with pytest.raises(OutcomeUnknownError):
            await sent
        await leading
        assert (await later).queue_offset == 1
        assert bodies(one) == [b"a", b"b"]
        await feed(two, one)
        await confirmed(two)
        assert log_of(one) == log_of(two)


async def test_a_replica_whose_flush_fails_neither_copies_nor_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, FlushMode.SYNC) as (one, two):
        waiting = await send(one, "durable")
        await feed(two, one)
        end = two.durable_offset
        flushes = Flushes(monkeypatch)
        for is_failing in (True, False):
            flushes.failing = False
            waiting += await send(one, "lost")
            flushes.failing = is_failing
            with pytest.raises(StoreFailedError):
                await feed(two, one)

        with pytest.raises(StoreFailedError):
            two.lead(began(2))
        two.confirm(two.log_max_offset)
        assert two.is_replica
        assert two.visible_offset == two.durable_offset == end < two.log_max_offset
        assert bodies(two) == [b"durable"]
        one.follow()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_run_that_is_being_copied_outlasts_a_call_to_follow(tmp_path: Path) -> None:
    async with pair(tmp_path, FlushMode.SYNC) as (one, two):
        await send(one, "a")
        begin = two.log_max_offset
        run = memoryview(b"".join(one.log_run(begin, 10**6)))
        copying = asyncio.create_task(two.copy(run, begin))
        await asyncio.sleep(0)
        two.follow()
        with pytest.raises(AssertionError, match="a run is being copied"):
            two.lead(began(2))

        await copying
        assert two.durable_offset == one.log_max_offset
        await confirmed(one)


async def test_only_a_replica_leads_and_following_twice_changes_nothing(tmp_path: Path) -> None:
    async with pair(tmp_path, FlushMode.ASYNC) as (one, two):
        with pytest.raises(AssertionError, match="begins no further term"):
            one.lead(began(2))
        with pytest.raises(AssertionError, match="rule 13"):
            two.lead(began(1))
        sent = await send(one, "a")
        one.follow()
        one.follow()
        with pytest.raises(OutcomeUnknownError):
            await sent[0]
        assert one.epochs() == two.epochs()
