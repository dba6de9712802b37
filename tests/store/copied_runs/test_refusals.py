"""Runs that do not continue a replica's log are refused, and change nothing."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random

import anyio
import msgspec
import pytest

from eruca.contract.errors import DiskFullError
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import BLANK_SIZE_MIN, MAGIC_BLANK, Record, SysFlag, encode_record
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.log.copied_run import RefusedRunError
from eruca_broker.core.state.events import EVENTS_QUEUE_ID, decode_event, encode_event
from eruca_broker.core.state.record_groups import GROUP_HEADS
from eruca_broker.store.log.segment import Segment
from eruca_broker.store.message_store import MessageStore
from support.copied_runs import catch_up, copied, open_replica
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
from support.stores import STORE_HOST

pytestmark = pytest.mark.anyio


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
        run = b"".join(source.log.run(offset, 12_000))
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
                await replica.role.copy(memoryview(bytes_of_run), offset)


async def test_a_run_that_is_cut_is_refused(source: MessageStore, tmp_path: Path) -> None:
    async with half_way(source, tmp_path / "replica") as (replica, run):
        end = replica.log_max_offset
        sound = record_ends(run, SEGMENT_SIZE - end % SEGMENT_SIZE)
        lengths = {0, 1, 7, 8, 90, len(run) - 1, *Random(7).sample(range(len(run)), 60)} - sound
        for length in sorted(lengths):
            with refused(replica):
                await replica.role.copy(memoryview(run[:length]), end)
        with refused(replica):
            await replica.role.copy(memoryview(run + bytes(40)), end)


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


@pytest.mark.parametrize("flag", [SysFlag.PREPARED, SysFlag.ROLLBACK], ids=str)
async def test_a_record_of_no_queue_is_refused_after_the_first_event(
    source: MessageStore, tmp_path: Path, flag: SysFlag
) -> None:
    """Only RocketMQ, which began a log, writes such records."""
    async with half_way(source, tmp_path / "replica") as (replica, _run):
        end = replica.log_max_offset
        record = Record("orders", b"x", log_offset=end, store_host=STORE_HOST, sys_flag=int(flag))
        run = encode_record(record, with_checksum=True)
        with refused(replica, "expected a record of a queue"):
            await replica.role.copy(memoryview(run), end)


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
        [piece] = source.log.run(offset, begin - offset + 30_000)

        with refused(replica):
            await replica.role.copy(piece[: end_of_head - offset], offset)


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
                await replica.role.copy(memoryview(changed), end)


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
        run = b"".join(other.log.run(offset, SEGMENT_SIZE))

        with refused(replica, match=f"of log {source.state.log_id}, found one of"):
            await replica.role.copy(memoryview(run), offset)
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
        begin, epoch = source.log_max_offset, source.role.epochs().last + 1
        await append_epoch(source, epoch, begin - 1)

        with refused(replica, match=rf"to begin at log offset {begin}, .* found {begin - 1}"):
            await replica.role.copy(memoryview(b"".join(source.log.run(begin, 1))), begin)


async def test_a_run_with_an_epoch_that_does_not_ascend_is_refused(
    source: MessageStore, tmp_path: Path
) -> None:
    """Rule 13: an arbiter that went back in time cannot repeat an epoch."""
    async with open_replica(tmp_path / "replica") as replica:
        await catch_up(replica, source, Random(11))
    directory = Path(shutil.copytree(tmp_path / "replica", tmp_path / "other"))
    other = await MessageStore.open(directory, settings(is_replica=False), CLOCK)
    begin, last = other.log_max_offset, other.role.epochs().last
    for epoch in (last + 2, last + 1):
        await append_epoch(other, epoch, other.log_max_offset)
    whole, first = other.log.run(begin, SEGMENT_SIZE), other.log.run(begin, 1)
    second = other.log.run(begin + len(first[0]), SEGMENT_SIZE)

    async with open_replica(tmp_path / "replica") as replica:
        for run in (whole, second):
            at = replica.log_max_offset
            with refused(replica, match=rf"an epoch after {last + 2} at .* found {last + 1}"):
                await replica.role.copy(memoryview(b"".join(run)), at)
            if run is whole:
                await replica.role.copy(first[0], begin)
                replica.role.confirm(replica.log_max_offset)
        assert replica.role.epochs().last == last + 2
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
        run = b"".join(source.log.run(end, 3_000))

        with refused(replica, match="expected queue offset 0 at log offset"):
            await replica.role.copy(memoryview(run), end)


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
                    await replica.role.copy(memoryview(run), replica.log_max_offset)
                with pytest.raises(DiskFullError):
                    await replica.role.copy(memoryview(run), replica.log_max_offset)
            assert files_of(replica, "commitlog") == before
            await replica.upkeep.probe_disk()
            assert replica.refusal is None
