"""One consume queue: every entry has its place, and nothing else is ever found there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca_broker.core.consume_queue_entry import ENTRY_SIZE, FILLER, encode_entry
from eruca_broker.store.files.unflushed import Unflushed
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.queue_files import DamagedQueueError
from support.one_consume_queue import (
    FILE_SIZE,
    PER_FILE,
    columns,
    expected_rows,
    files_of,
    open_files,
    open_queue,
    opened,
    put_all,
    rows,
)


@pytest.fixture(autouse=True)
def _close_files() -> Iterator[None]:
    """Or a thousand descriptors would be open, and select() would refuse those of later tests."""
    yield
    while opened:
        opened.pop().close()


def test_a_queue_that_does_not_exist_is_empty_and_makes_no_directory(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)

    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_entries_lie_at_twenty_bytes_times_their_offset(tmp_path: Path) -> None:
    put_all(open_queue(tmp_path), 0, 12)

    assert files_of(tmp_path) == {
        f"{start * ENTRY_SIZE:020d}": b"".join(
            encode_entry(*row) for row in expected_rows(start, min(start + PER_FILE, 12))
        ).ljust(FILE_SIZE, b"\0")
        for start in (0, 5, 10)
    }


def test_a_file_takes_disk_space_only_where_it_is_written(tmp_path: Path) -> None:
    queue = ConsumeQueue.open(
        f"{tmp_path}/orders/0", open_files=open_files(1), unflushed=Unflushed()
    )

    queue.put(0, 0, 100, 0)

    status = (tmp_path / "orders" / "0" / f"{0:020d}").stat()
    assert status.st_size == 6_000_000
    assert status.st_blocks * 512 <= 4096


@given(st.lists(st.integers(1, 13), max_size=6), st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_runs_of_any_length_write_what_single_entries_write(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], start: int
) -> None:
    one, many = (tmp_path_factory.mktemp(name) for name in ("one", "many"))
    single, queue = open_queue(one), open_queue(many)
    end = start

    for size in sizes:
        put_all(single, end, end + size)
        assert queue.put_run(end, columns(end, end + size)) == size
        end += size

    assert files_of(one) == files_of(many)
    assert rows(queue) == expected_rows(start, end)
    assert queue.max_physical_offset == (1000 + 100 * end if sizes else 0)


def test_a_queue_that_begins_late_is_padded_from_its_files_start(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)

    put_all(queue, 13, 15)

    name = f"{10 * ENTRY_SIZE:020d}"
    written = 3 * FILLER + b"".join(encode_entry(*row) for row in expected_rows(13, 15))
    assert files_of(tmp_path) == {name: written}
    assert (queue.min_offset, queue.max_offset) == (13, 15)


@given(st.integers(0, 20), st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_entries_put_again_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, first: int, last: int
) -> None:
    first, last = sorted((first, last + 1))
    root = tmp_path_factory.mktemp("queue")
    queue = open_queue(root)
    queue.put_run(3, columns(3, 12))
    before = files_of(root)

    if first > 12:
        with pytest.raises(DamagedQueueError):
            queue.put_run(first, columns(first, last + 1))
        assert files_of(root) == before
    else:
        new = queue.put_run(first, columns(first, last + 1))
        assert new == max(last + 1 - 12, 0)
        assert rows(queue) == expected_rows(3, max(12, last + 1))


def test_a_record_from_before_the_queues_last_one_is_known_whatever_its_offset(
    tmp_path: Path,
) -> None:
    """A replay of a deleted topic's records must not write into its successor's queue."""
    queue = open_queue(tmp_path)
    queue.put(0, 5000, 100, 0)

    assert queue.put_run(0, columns(0, 10)) == 0
    assert queue.put(1, 4900, 100, 0) == 0
    assert (queue.max_offset, queue.max_physical_offset) == (1, 5100)


def test_an_entry_that_leaves_a_gap_is_refused(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    put_all(queue, 0, 3)

    with pytest.raises(DamagedQueueError, match="entry 4 of the record at 1400 does not follow 2"):
        queue.put(4, 1400, 100, 0)


@pytest.mark.parametrize("first", [0, 3, 7])
def test_a_queue_is_the_same_after_it_was_opened_again(tmp_path: Path, first: int) -> None:
    for last in range(first + 1, first + 12):
        put_all(open_queue(tmp_path), first, last)

        queue = open_queue(tmp_path)

        assert (queue.min_offset, queue.max_offset) == (first, last)
        assert queue.max_physical_offset == 1000 + 100 * last
        assert rows(queue) == expected_rows(first, last)


@pytest.mark.parametrize("limit", [None, 5_000], ids=["stopped", "killed"])
@pytest.mark.parametrize("first", [1, 9, 10, 11, 20, 35])
def test_where_a_queue_without_entries_begins_is_not_forgotten(
    tmp_path: Path, first: int, limit: int | None
) -> None:
    open_queue(tmp_path).begin(first)

    queue = open_queue(tmp_path, limit=limit)

    assert (queue.min_offset, queue.max_offset) == (first, first)
    put_all(queue, first, first + 3)
    assert rows(open_queue(tmp_path)) == expected_rows(first, first + 3)


def test_a_queue_that_lost_all_entries_may_begin_elsewhere(tmp_path: Path) -> None:
    for start in (0, 3, 8, 30):
        queue = open_queue(tmp_path / str(start))
        put_all(queue, 8, 10)
        queue.truncate(0)

        queue.put_run(start, columns(start, start + 4))

        assert (queue.min_offset, queue.max_offset) == (start, start + 4)
        assert rows(open_queue(tmp_path / str(start))) == expected_rows(start, start + 4)


def test_the_minimum_moves_past_entries_whose_records_are_gone(tmp_path: Path) -> None:
    """Exhaustive over the log's beginning."""
    for log_start in range(900, 2500, 50):
        queue = open_queue(tmp_path / str(log_start))
        put_all(queue, 2, 14)

        queue.correct_min(log_start)

        assert queue.min_offset == min(max(-(-(log_start - 1000) // 100), 2), 14)
        assert queue.max_offset == 14


def test_a_cut_before_the_minimum_leaves_no_live_entry(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    put_all(queue, 0, 4)
    queue.correct_min(1300)

    queue.truncate(1200)

    assert (queue.min_offset, queue.max_offset) == (2, 2)


def test_files_that_are_past_are_deleted_and_never_the_last(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    put_all(queue, 2, 14)

    assert queue.delete_expired(1400) == 0
    assert queue.delete_expired(2000) == 2
    assert (queue.min_offset, list(files_of(tmp_path))) == (10, [f"{2 * FILE_SIZE:020d}"])
    assert queue.delete_expired(9999) == 0
    assert (queue.min_offset, queue.max_offset) == (14, 14)

    put_all(queue, 14, 16)
    assert rows(queue) == expected_rows(14, 16)


def test_a_queue_with_deleted_files_is_found_again(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    put_all(queue, 0, 14)
    queue.delete_expired(1700)

    reopened = open_queue(tmp_path)

    assert (reopened.min_offset, reopened.max_offset) == (5, 14)
    reopened.correct_min(1700)
    assert rows(reopened) == expected_rows(7, 14)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=14),
    st.sets(st.integers(0, 13)),
    st.integers(0, 14),
    st.integers(-1, 10),
)
@settings(max_examples=60, deadline=None)
def test_offsets_by_time_are_what_a_look_at_every_entry_finds(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[int],
    damaged: set[int],
    expired: int,
    timestamp: int,
) -> None:
    times.sort()
    known = [None if n in damaged else time for n, time in enumerate(times)]
    told = [next((t for t in known[n:] if t is not None), 11) for n in range(len(times))]
    expired = min(expired, len(times))
    queue = open_queue(tmp_path_factory.mktemp("queue"))
    put_all(queue, 3, 3 + len(times))
    queue.correct_min(1300 + 100 * expired)
    live = range(3 + expired, 3 + len(times))

    lower, upper = (
        queue.offset_by_time(timestamp, lambda at: known[(at - 1300) // 100], upper=is_upper)
        for is_upper in (False, True)
    )

    assert lower == next((n for n in live if told[n - 3] >= timestamp), queue.max_offset)
    assert upper == next((n for n in reversed(live) if told[n - 3] <= timestamp), 0)


def test_everything_written_or_made_is_noted_for_the_next_flush(tmp_path: Path) -> None:
    unflushed = Unflushed()
    queue = open_queue(tmp_path, unflushed=unflushed)

    put_all(queue, 4, 6)

    directory = f"{tmp_path}/orders/0"
    first, second = f"{directory}/{0:020d}", f"{directory}/{FILE_SIZE:020d}"
    assert unflushed.files == {first, second}
    assert unflushed.directories == {directory, f"{tmp_path}/orders", str(tmp_path)}
    unflushed.take().sync()

    put_all(queue, 6, 7)
    assert (unflushed.files, unflushed.directories) == ({second}, set())
    queue.truncate(0)
    assert (unflushed.files, unflushed.directories) == ({first}, {directory})


def test_no_entries_are_read_behind_the_end(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    put_all(queue, 0, 7)

    assert queue.entries(4, 100)["tags_code"].tolist() == [-4, -5, -6]
    assert len(queue.entries(7, 1)) == 0
    assert len(queue.entries(9, 1)) == 0
    assert len(queue.entries(2, 0)) == 0
