"""Bounds of a log and of its runs: no reader is sent back, and no group of records is cut."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from eruca.contract.errors import DiskFullError, NotMasterForSureError
from eruca.contract.wire import PullStatus
from eruca_broker.core.state.events import decode_event
from eruca_broker.core.state.record_groups import GROUP_HEADS
from eruca_broker.store.log.segment import Segment
from eruca_broker.store.message_store import MessageStore
from support.copied_runs import catch_up, open_replica
from support.lived_stores import SEGMENT_SIZE, epoch_began, files_of, state_of
from support.log_model import read_log
from support.stores import all_answers, new_term

pytestmark = pytest.mark.anyio


def assert_same_behind(replica: MessageStore, source: MessageStore) -> None:
    """Compare a store with one whose older segments are deleted, but not yet from its queues."""
    assert files_of(replica, "commitlog") == files_of(source, "commitlog")
    assert all_answers(replica) == all_answers(source)
    assert state_of(replica) == state_of(source)


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
            end = begin + sum(map(len, source.log.run(begin, bytes_max)))
            assert end in ends
            assert not any(first < end < last for first, last in groups)
    assert source.log.run(source.visible_offset, 1_000) == []


async def test_a_replica_without_records_begins_where_its_source_begins(
    source: MessageStore, tmp_path: Path
) -> None:
    """Retention has deleted the source's first segments; the next begins with a snapshot."""
    await source.upkeep.checkpoint()
    for _ in source.retention.deletion(2, source.visible_offset):  # also of what still waits
        pass
    begin = source.log_min_offset
    assert begin == 2 * SEGMENT_SIZE

    async with open_replica(tmp_path / "replica") as replica:
        replica.role.begin_at(SEGMENT_SIZE, segment_bytes=SEGMENT_SIZE // 2)
        replica.role.begin_at(begin, segment_bytes=SEGMENT_SIZE)  # it has moved on meanwhile
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
            replica.role.begin_at(2 * SEGMENT_SIZE, segment_bytes=SEGMENT_SIZE)


async def test_a_replica_without_room_for_its_first_segment_begins_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with open_replica(tmp_path / "replica") as replica:
        with monkeypatch.context() as disk:
            disk.setattr(Segment, "create", full)
            with pytest.raises(DiskFullError):
                replica.role.begin_at(SEGMENT_SIZE, segment_bytes=SEGMENT_SIZE)
            assert isinstance(replica.refusal, DiskFullError)
        await replica.upkeep.probe_disk()
        replica.role.begin_at(SEGMENT_SIZE, segment_bytes=SEGMENT_SIZE)

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
        assert source.log.is_boundary(offset) is expected, offset


async def test_the_bytes_of_a_log_are_returned_by_segment(source: MessageStore) -> None:
    whole = b"".join(
        path.read_bytes() for path in sorted((source.directory / "commitlog").iterdir())
    )
    random = Random(16)
    for _ in range(50):
        begin, end = sorted(random.choices(range(source.log_max_offset + 1), k=2))
        pieces = source.log.pieces(begin, end)

        assert b"".join(pieces) == whole[begin:end]
        assert len(pieces) <= (end - begin) // SEGMENT_SIZE + 2


async def test_a_replica_that_is_behind_does_not_send_a_reader_back(
    source: MessageStore, tmp_path: Path
) -> None:
    """Rule 7: it learns late what is confirmed, and readers may come from the master."""
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
        replica.doubt = lambda: NotMasterForSureError("a master without its lease")
        read = replica.queues.read("orders", 0, end, count_max=1, bytes_max=1_000)
        assert (read.status, read.next_offset) == (PullStatus.NO_NEW_MESSAGE, end)


async def test_a_replica_whose_log_begins_later_lets_no_reader_pass_messages(
    source: MessageStore, tmp_path: Path
) -> None:
    """Its master, or the next one, may have them."""
    async with open_replica(tmp_path / "replica") as replica:
        replica.role.begin_at(2 * SEGMENT_SIZE, segment_bytes=SEGMENT_SIZE)
        await catch_up(replica, source, Random(1))
        begin, _ = replica.queues.range("orders", 0)
        assert source.queues.range("orders", 0)[0] < begin

        with pytest.raises(NotMasterForSureError):
            replica.queues.read("orders", 0, begin - 1, count_max=1, bytes_max=1_000)
        read = replica.queues.read("orders", 0, begin, count_max=1, bytes_max=1_000)
        assert read.status is PullStatus.FOUND

        await new_term(replica, epoch_began(9))
        read = replica.queues.read("orders", 0, begin - 1, count_max=1, bytes_max=1_000)
        assert (read.status, read.next_offset) == (PullStatus.OFFSET_TOO_SMALL, begin)
