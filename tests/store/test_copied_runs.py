"""A replica appends runs of its master's log, and then equals the master.

The source is a real broker whose log holds records of every kind, in segments that are small.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random

import anyio
import msgspec
import pytest

from eruca.contract.errors import DiskFullError, NotMasterForSureError
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import BLANK_SIZE_MIN, MAGIC_BLANK
from eruca.contract.wire import PullStatus
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.log.copied_run import RefusedRunError
from eruca_broker.core.state.events import EVENTS_QUEUE_ID, TopicPut, decode_event, encode_event
from eruca_broker.core.state.record_groups import GROUP_HEADS
from eruca_broker.store.log.segment import Segment
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.lived_stores import (
    CLOCK,
    SEGMENT_SIZE,
    assert_same,
    broker_directory,
    epoch_began,
    files_of,
    settings,
    state_of,
)
from support.log_model import read_log
from support.stores import STORE_HOST, abandon, all_answers, batch, new_term

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", name="stored")
def stored_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's store."""
    return broker_directory(tmp_path_factory.mktemp("stored"), 1)


@pytest.fixture
async def source(stored: Path, tmp_path: Path) -> AsyncIterator[MessageStore]:
    """The broker's store, open."""
    directory = Path(shutil.copytree(stored, tmp_path / "source"))
    store = await MessageStore.open(directory, settings(is_replica=False), CLOCK)
    yield store
    await store.close()


@asynccontextmanager
async def open_replica(
    directory: Path, flush_mode: FlushMode = FlushMode.ASYNC
) -> AsyncIterator[MessageStore]:
    store = await MessageStore.open(
        directory, settings(is_replica=True, flush_mode=flush_mode), CLOCK
    )
    yield store
    with suppress(AssertionError):  # it has been abandoned, or replaced
        await store.close()


async def copied(replica: MessageStore, run: bytes) -> None:
    """Have *replica* append a run and publish it."""
    await replica.copy(memoryview(run), replica.log_max_offset)
    replica.confirm(replica.durable_offset)


async def catch_up(
    replica: MessageStore, source: MessageStore, random: Random, *, until: int | None = None
) -> list[int]:
    """Feed *replica* runs of random sizes, up to a log offset; return where they began."""
    begins = []
    end = source.visible_offset if until is None else until
    while (offset := replica.log_max_offset) < end:
        run = b"".join(source.log_run(offset, random.randrange(1, 20_000)))
        assert run
        await copied(replica, run)
        assert replica.visible_offset == replica.log_max_offset == offset + len(run)
        begins.append(offset)
    return begins


def assert_same_behind(replica: MessageStore, source: MessageStore) -> None:
    """Compare a store with one whose older segments are deleted, but not yet from its queues."""
    assert files_of(replica, "commitlog") == files_of(source, "commitlog")
    assert all_answers(replica) == all_answers(source)
    assert state_of(replica) == state_of(source)


def test_the_source_has_records_of_every_kind(stored: Path) -> None:
    records = list(read_log(stored))
    events = {type(decode_event(r.body)) for r in records if r.topic == "ERUCA_SYS_EVENTS"}

    assert len(list((stored / "commitlog").iterdir())) > 4
    assert {event.__name__ for event in events} >= {
        "StateSnapshot", "TopicPut", "TopicDeleted", "GroupPut", "TimersFired",
        "TransactionBegun", "TransactionDecided", "DeliveriesLeased", "DeliveriesAcked",
        "DeliveriesNacked", "EpochBegan",
    }  # fmt: skip


@pytest.mark.parametrize("flush_mode", FlushMode)
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_replica_fed_by_runs_of_any_size_equals_its_source(
    source: MessageStore, tmp_path: Path, flush_mode: FlushMode, seed: int
) -> None:
    async with open_replica(tmp_path / "replica", flush_mode) as replica:
        await catch_up(replica, source, Random(seed))

        assert_same(replica, source)
        if flush_mode is FlushMode.SYNC:
            assert replica.flushed_offset == replica.log_max_offset
    async with open_replica(tmp_path / "replica") as replica:
        assert_same(replica, source)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
async def test_a_replica_goes_on_where_it_was_ended(
    source: MessageStore, tmp_path: Path, *, is_killed: bool
) -> None:
    random = Random(3)
    ends = sorted(random.sample(range(source.visible_offset), 12))
    for end in [*ends, source.visible_offset]:
        replica = await MessageStore.open(tmp_path / "replica", settings(is_replica=True), CLOCK)
        await catch_up(replica, source, random, until=end)
        await (abandon(replica) if is_killed else replica.close())

    async with open_replica(tmp_path / "replica") as replica:
        assert replica.log_max_offset == source.visible_offset
        assert_same(replica, source)


async def test_a_replica_that_lost_its_end_to_a_power_cut_goes_on_from_what_is_left(
    source: MessageStore, tmp_path: Path
) -> None:
    random = Random(4)
    replica = await MessageStore.open(tmp_path / "replica", settings(is_replica=True), CLOCK)
    await replica.checkpoint()
    begins = await catch_up(replica, source, random)
    await abandon(replica)
    kept = random.choice(begins[len(begins) // 2 :]) + 100
    for path in (tmp_path / "replica" / "commitlog").iterdir():
        data = path.read_bytes()
        left = data[: max(kept - int(path.name), 0)]
        path.write_bytes(left.ljust(len(data), b"\0"))

    async with open_replica(tmp_path / "replica") as replica:
        assert replica.log_max_offset <= kept
        await catch_up(replica, source, random)
        assert_same(replica, source)


async def test_a_run_ends_behind_a_record_and_never_amid_a_group(source: MessageStore) -> None:
    ends = {0}
    groups: list[tuple[int, int]] = []
    for record in read_log(source.directory):
        end = record.log_offset + record.size
        ends.add(end)
        if record.topic == "ERUCA_SYS_EVENTS":
            event = decode_event(record.body)
            if isinstance(event, GROUP_HEADS) and event.group_size:
                groups.append((record.log_offset, end + event.group_size))
    assert groups

    for begin in ends - {source.visible_offset}:
        for bytes_max in (1, 700, 5_000):
            end = begin + sum(map(len, source.log_run(begin, bytes_max)))
            assert end in ends
            assert not any(first < end < last for first, last in groups)
    assert source.log_run(source.visible_offset, 1_000) == []


@contextmanager
def refused(replica: MessageStore, match: str | None = None) -> Iterator[None]:
    """Expect a refusal, and that nothing has changed."""

    def present() -> list[object]:
        files = [files_of(replica, name) for name in ("commitlog", "consumequeue")]
        return [*files, state_of(replica), replica.visible_offset, replica.log_max_offset]

    before = present()
    with pytest.raises(RefusedRunError, match=match):
        yield
    assert present() == before


@asynccontextmanager
async def half_way(
    source: MessageStore, directory: Path
) -> AsyncIterator[tuple[MessageStore, bytes]]:
    """Yield a replica that lacks about half, and a run that continues it into the next segment."""
    async with open_replica(directory) as replica:
        await catch_up(replica, source, Random(5), until=3 * SEGMENT_SIZE - 9_000)
        offset = replica.log_max_offset
        run = b"".join(source.log_run(offset, 12_000))
        assert offset < 3 * SEGMENT_SIZE < offset + len(run)
        yield replica, run
        await copied(replica, run)
        await catch_up(replica, source, Random(6))
        assert_same(replica, source)


async def test_a_run_that_begins_elsewhere_is_refused(source: MessageStore, tmp_path: Path) -> None:
    async with half_way(source, tmp_path / "replica") as (replica, run):
        end = replica.log_max_offset
        size = int.from_bytes(run[:4])
        for bytes_of_run, offset in (
            (run, end + 1),
            (run, end - size),
            (run, 0),
            (run[size:], end),
            (run[size:], end + size),
            (run[1:], end),
            (b"\0" + run, end),
        ):
            with refused(replica):
                await replica.copy(memoryview(bytes_of_run), offset)


async def test_a_run_that_is_cut_is_refused(source: MessageStore, tmp_path: Path) -> None:
    async with half_way(source, tmp_path / "replica") as (replica, run):
        end = replica.log_max_offset
        sound = record_ends(run, SEGMENT_SIZE - end % SEGMENT_SIZE)
        lengths = {0, 1, 7, 8, 90, len(run) - 1, *Random(7).sample(range(len(run)), 60)} - sound
        for length in sorted(lengths):
            with refused(replica):
                await replica.copy(memoryview(run[:length]), end)
        with refused(replica):
            await replica.copy(memoryview(run + bytes(40)), end)


def record_ends(run: bytes, room: int) -> set[int]:
    """Return the lengths at which a run ends behind a record that is not blank."""
    ends, position = set(), 0
    while position < len(run):
        size, magic = int.from_bytes(run[position : position + 4]), run[position + 4 : position + 8]
        position += size
        if int.from_bytes(magic) != MAGIC_BLANK:
            ends.add(position)
        else:
            assert position == room
    return ends


async def test_a_run_that_ends_amid_a_group_is_refused(
    source: MessageStore, tmp_path: Path
) -> None:
    heads = [
        (record.log_offset, record.log_offset + record.size)
        for record in read_log(source.directory)
        if record.topic == "ERUCA_SYS_EVENTS"
        and isinstance(event := decode_event(record.body), GROUP_HEADS)
        and event.group_size
    ]
    begin, end_of_head = heads[len(heads) // 2]
    async with open_replica(tmp_path / "replica") as replica:
        await catch_up(replica, source, Random(8), until=begin - 2_000)
        offset = replica.log_max_offset
        assert offset <= begin
        [piece] = source.log_run(offset, begin - offset + 30_000)

        with refused(replica):
            await replica.copy(piece[: end_of_head - offset], offset)


async def test_a_run_with_a_changed_byte_is_refused(source: MessageStore, tmp_path: Path) -> None:
    async with half_way(source, tmp_path / "replica") as (replica, run):
        end = replica.log_max_offset
        room = SEGMENT_SIZE - end % SEGMENT_SIZE
        blank_at = max(length for length in record_ends(run, room) if length <= room)
        padding = range(blank_at + BLANK_SIZE_MIN, room)  # may be anything, and is copied as it is
        for position in {*range(100), *Random(9).sample(range(len(run)), 200)} - {*padding}:
            changed = bytearray(run)
            changed[position] ^= 0x20
            with refused(replica):
                await replica.copy(memoryview(changed), end)


async def test_a_run_with_a_snapshot_of_another_log_is_refused(
    source: MessageStore, tmp_path: Path
) -> None:
    directory = tmp_path / "other"
    await anyio.to_thread.run_sync(broker_directory, directory, 1)  # it has had the same life
    theirs = {record.log_offset for record in read_log(directory)}
    other = await MessageStore.open(directory, settings(is_replica=False), CLOCK)
    async with open_replica(tmp_path / "replica") as replica:
        while (offset := replica.log_max_offset) not in theirs or not offset:
            await catch_up(replica, source, Random(10), until=offset + 1)
        run = b"".join(other.log_run(offset, SEGMENT_SIZE))

        with refused(replica, match=f"of log {source.state.log_id}, found one of"):
            await replica.copy(memoryview(run), offset)
    await other.close()


async def append_epoch(store: MessageStore, epoch: int, begun_at: int) -> None:
    """Append the beginning of an epoch, also one that no store would append."""
    event = msgspec.structs.replace(epoch_began(epoch), begun_at=begun_at)
    record = encode_event(event, now_ms=CLOCK.now_ms(), host=STORE_HOST)
    await store._writer.appended(batch_of_records(EVENTS_TOPIC, EVENTS_QUEUE_ID, [record]), None)


async def test_a_run_with_an_epoch_that_begins_elsewhere_is_refused(
    source: MessageStore, tmp_path: Path
) -> None:
    async with open_replica(tmp_path / "replica") as replica:
        await catch_up(replica, source, Random(11))
        begin, epoch = source.log_max_offset, source.epochs().last + 1
        await append_epoch(source, epoch, begin - 1)

        with refused(replica, match=rf"to begin at log offset {begin}, .* found {begin - 1}"):
            await replica.copy(memoryview(b"".join(source.log_run(begin, 1))), begin)


async def test_a_run_with_an_epoch_that_does_not_ascend_is_refused(
    source: MessageStore, tmp_path: Path
) -> None:
    """Rule 13: an arbiter that went back in time cannot repeat an epoch."""
    async with open_replica(tmp_path / "replica") as replica:
        await catch_up(replica, source, Random(11))
    directory = Path(shutil.copytree(tmp_path / "replica", tmp_path / "other"))
    other = await MessageStore.open(directory, settings(is_replica=False), CLOCK)
    begin, last = other.log_max_offset, other.epochs().last
    for epoch in (last + 2, last + 1):
        await append_epoch(other, epoch, other.log_max_offset)
    whole, first = other.log_run(begin, SEGMENT_SIZE), other.log_run(begin, 1)
    second = other.log_run(begin + len(first[0]), SEGMENT_SIZE)

    async with open_replica(tmp_path / "replica") as replica:
        for run in (whole, second):
            at = replica.log_max_offset
            with refused(replica, match=rf"an epoch after {last + 2} at .* found {last + 1}"):
                await replica.copy(memoryview(b"".join(run)), at)
            if run is whole:
                await replica.copy(first[0], begin)
                replica.confirm(replica.log_max_offset)
        assert replica.epochs().last == last + 2
    await other.close()


async def test_a_run_whose_queue_offsets_do_not_follow_is_refused(
    source: MessageStore, tmp_path: Path
) -> None:
    """No record shows that by itself: they are another log's, which has had another life."""
    async with open_replica(tmp_path / "replica") as replica:
        await catch_up(replica, source, Random(12), until=30_000)
        for key in list(replica._consume_queues):
            replica._consume_queues.delete(*key)
        replica._writer._next_offsets.clear()
        end = replica.log_max_offset
        run = b"".join(source.log_run(end, 3_000))

        with refused(replica, match="expected queue offset 0 at log offset"):
            await replica.copy(memoryview(run), end)


async def test_a_replica_that_has_no_room_refuses_and_takes_the_run_later(
    source: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with half_way(source, tmp_path / "replica") as (replica, run):
        before = files_of(replica, "commitlog")
        for name in ("create", "write"):
            with monkeypatch.context() as disk:
                disk.setattr(Segment, name, full)
                with pytest.raises(DiskFullError):
                    await replica.copy(memoryview(run), replica.log_max_offset)
                with pytest.raises(DiskFullError):
                    await replica.copy(memoryview(run), replica.log_max_offset)
            assert files_of(replica, "commitlog") == before
            await replica.probe_disk()
            assert replica.refusal is None


async def test_a_run_is_stored_even_if_its_caller_is_cancelled(
    source: MessageStore, tmp_path: Path
) -> None:
    async with open_replica(tmp_path / "replica", FlushMode.SYNC) as replica:
        run = b"".join(source.log_run(0, 10_000))
        copying = asyncio.create_task(replica.copy(memoryview(run), 0))
        await asyncio.sleep(0)
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying

        assert replica.durable_offset == len(run)
        replica.confirm(len(run))
        await catch_up(replica, source, Random(13))
        assert_same(replica, source)


async def test_a_run_may_be_the_whole_log(source: MessageStore, tmp_path: Path) -> None:
    run = b"".join(source.log_run(0, 2**30))
    async with open_replica(tmp_path / "replica") as replica:
        await copied(replica, run)

        assert len(run) == source.visible_offset
        assert_same(replica, source)


async def test_runs_that_come_at_once_are_taken_one_after_another(
    source: MessageStore, tmp_path: Path
) -> None:
    async with open_replica(tmp_path / "replica", FlushMode.SYNC) as replica:
        runs, end = [], 0
        while end < source.visible_offset:
            run = b"".join(source.log_run(end, 9_000))
            runs.append(replica.copy(memoryview(run), end))
            end += len(run)
        await asyncio.gather(*runs)
        replica.confirm(end)

        assert_same(replica, source)


async def test_a_replica_takes_nothing_but_runs_and_only_a_replica_takes_any(
    source: MessageStore, tmp_path: Path
) -> None:
    async with open_replica(tmp_path / "replica") as replica:
        assert (replica.log_max_offset, list((tmp_path / "replica" / "commitlog").iterdir())) == (
            0,
            [],
        )
        with pytest.raises(NotMasterForSureError):
            await replica.change(TopicPut("orders", 1, 1, "rw"))
        with pytest.raises(NotMasterForSureError):
            replica.append_group([batch("orders", 0, [b"x"])])
    end = source.log_max_offset
    run = b"".join(source.log_run(0, 1))
    with pytest.raises(RefusedRunError, match=f"expected a run at log offset {end}, found 0"):
        await source.copy(memoryview(run), 0)


async def test_a_replica_that_becomes_a_broker_goes_on_as_its_source_would(
    source: MessageStore, tmp_path: Path
) -> None:
    async with open_replica(tmp_path / "replica") as replica:
        await catch_up(replica, source, Random(14))
    own = await MessageStore.open(tmp_path / "replica", settings(is_replica=False), CLOCK)
    assert_same(own, source)

    for store in (own, source):
        await store.append(batch("orders", 0, [b"one more"] * 3, keys="k1"))

    assert all_answers(own) == all_answers(source)
    assert own.state.log_id == source.state.log_id
    await own.close()


async def test_a_replica_without_records_begins_where_its_source_begins(
    source: MessageStore, tmp_path: Path
) -> None:
    """Retention has deleted the source's first segments; the next begins with a snapshot."""
    await source.checkpoint()
    for _ in source.retention.deletion(2, source.visible_offset):  # also of what still waits
        pass
    begin = source.log_min_offset
    assert begin == 2 * SEGMENT_SIZE

    async with open_replica(tmp_path / "replica") as replica:
        replica.begin_at(SEGMENT_SIZE, segment_bytes=SEGMENT_SIZE // 2)
        replica.begin_at(begin, segment_bytes=SEGMENT_SIZE)  # it has moved on meanwhile
        assert replica.log_min_offset == replica.log_max_offset == replica.visible_offset == begin
    async with open_replica(tmp_path / "replica") as replica:  # without any record
        assert replica.log_min_offset == replica.log_max_offset == begin
        await catch_up(replica, source, Random(14))
        assert_same_behind(replica, source)
    async with open_replica(tmp_path / "replica") as replica:
        assert_same_behind(replica, source)


async def test_a_replica_that_has_records_begins_nowhere_else(
    source: MessageStore, tmp_path: Path
) -> None:
    async with open_replica(tmp_path / "replica") as replica:
        await catch_up(replica, source, Random(15), until=1)

        with pytest.raises(AssertionError, match="records would be lost"):
            replica.begin_at(2 * SEGMENT_SIZE, segment_bytes=SEGMENT_SIZE)


async def test_a_replica_without_room_for_its_first_segment_begins_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with open_replica(tmp_path / "replica") as replica:
        with monkeypatch.context() as disk:
            disk.setattr(Segment, "create", full)
            with pytest.raises(DiskFullError):
                replica.begin_at(SEGMENT_SIZE, segment_bytes=SEGMENT_SIZE)
            assert isinstance(replica.refusal, DiskFullError)
        await replica.probe_disk()
        replica.begin_at(SEGMENT_SIZE, segment_bytes=SEGMENT_SIZE)

        assert replica.refusal is None
        assert replica.log_min_offset == replica.log_max_offset == SEGMENT_SIZE


async def test_the_boundaries_of_a_log_are_the_ends_of_its_records_outside_groups(
    source: MessageStore,
) -> None:
    records = list(read_log(source.directory))
    ends = {record.log_offset + record.size for record in records} | {0}
    groups = [
        (record.log_offset, record.log_offset + record.size + event.group_size)
        for record in records
        if record.topic == "ERUCA_SYS_EVENTS"
        and isinstance(event := decode_event(record.body), GROUP_HEADS)
    ]
    amid = {end for end in ends if any(first < end < last for first, last in groups)}
    begins = {record.log_offset for record in records}  # also behind a blank record
    near = {end + delta for end in ends for delta in (-8, -1, 1, 40)}

    assert amid
    for offset in sorted(near | ends | {source.log_max_offset + 1}):
        expected = offset in ends | begins and offset not in amid
        assert source.is_boundary(offset) is expected, offset


async def test_the_bytes_of_a_log_are_returned_by_segment(source: MessageStore) -> None:
    whole = b"".join(
        path.read_bytes() for path in sorted((source.directory / "commitlog").iterdir())
    )
    random = Random(16)
    for _ in range(50):
        begin, end = sorted(random.choices(range(source.log_max_offset + 1), k=2))
        pieces = source.log_bytes(begin, end)

        assert b"".join(pieces) == whole[begin:end]
        assert len(pieces) <= (end - begin) // SEGMENT_SIZE + 2


async def test_a_replica_that_is_behind_does_not_send_a_reader_back(
    source: MessageStore, tmp_path: Path
) -> None:
    """Rule 7: it is told late what is confirmed, and readers may come from the master."""
    _, end = source.queues.range("orders", 0)
    async with open_replica(tmp_path / "replica") as replica:
        await catch_up(replica, source, Random(1), until=source.visible_offset // 2)
        _, end_here = replica.queues.range("orders", 0)
        assert 0 < end_here < end

        for offset in (end_here, end_here + 1, end):
            read = replica.queues.read("orders", 0, offset, count_max=1, bytes_max=1_000)

            assert (read.status, read.next_offset) == (PullStatus.NO_NEW_MESSAGE, offset)
            assert read.max_offset == end_here

        await new_term(replica, epoch_began(9))
        read = replica.queues.read("orders", 0, end, count_max=1, bytes_max=1_000)
        assert (read.status, read.next_offset) == (PullStatus.OFFSET_TOO_LARGE, end_here)
