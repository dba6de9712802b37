"""One consume queue after a crash, with damaged files, and on a full disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca_broker.core.consume_queue_entry import ENTRY_SIZE, FILLER, encode_entry
from eruca_broker.store.queues.held_entries import HeldEntries
from eruca_broker.store.queues.queue_files import DamagedQueueError
from support.limits import file_size_limit
from support.one_consume_queue import (
    FILE_SIZE,
    PER_FILE,
    columns,
    expected_rows,
    files_of,
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


def test_entries_behind_what_was_durable_are_removed_whatever_a_crash_left_of_them(
    tmp_path: Path,
) -> None:
    """Exhaustive over the durable end; behind it lie whole entries, holes and torn ones."""
    for durable in range(12):
        root = tmp_path / str(durable)
        queue = open_queue(root)
        put_all(queue, 0, 14)
        path = root / "orders" / "0" / f"{10 * ENTRY_SIZE:020d}"
        content = bytearray(path.read_bytes())
        content[40:60] = bytes(20)  # a hole before entry 13
        content[66:80] = bytes(14)  # of which six bytes came to the disk
        path.write_bytes(content)
        limit = 1000 + 100 * durable

        queue = open_queue(root, limit=limit)

        assert (queue.max_offset, rows(queue)) == (durable, expected_rows(0, durable))
        assert b"".join(files_of(root).values()).rstrip(b"\0") == b"".join(
            encode_entry(*row) for row in expected_rows(0, durable)
        ).rstrip(b"\0")
        put_all(queue, durable, 14)
        assert rows(open_queue(root)) == expected_rows(0, 14)


def test_a_last_file_cut_short_by_a_crash_is_repaired(tmp_path: Path) -> None:
    put_all(open_queue(tmp_path), 0, 7)
    path = tmp_path / "orders" / "0" / f"{FILE_SIZE:020d}"
    for size in (0, 5, 20, 47):
        os.truncate(path, size)

        queue = open_queue(tmp_path, limit=1500 + 100 * (size // ENTRY_SIZE))

        assert rows(queue) == expected_rows(0, 5 + size // ENTRY_SIZE)
        put_all(queue, queue.max_offset, 7)
        assert path.stat().st_size == FILE_SIZE


def test_a_file_that_was_created_and_not_written_to_is_no_end(tmp_path: Path) -> None:
    put_all(open_queue(tmp_path), 0, 5)
    (tmp_path / "orders" / "0" / f"{FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))

    queue = open_queue(tmp_path)

    assert queue.max_offset == 5
    put_all(queue, 5, 6)
    assert rows(open_queue(tmp_path)) == expected_rows(0, 6)


def test_a_queue_whose_only_file_is_empty_is_empty(tmp_path: Path) -> None:
    (tmp_path / "orders" / "0").mkdir(parents=True)
    (tmp_path / "orders" / "0" / f"{3 * FILE_SIZE:020d}").touch()

    queue = open_queue(tmp_path)

    assert (queue.min_offset, queue.max_offset) == (0, 0)
    assert files_of(tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "size"),
    [
        (f"{2 * FILE_SIZE:020d}", FILE_SIZE),  # after a missing one
        (f"{FILE_SIZE + 20:020d}", FILE_SIZE),  # where no file begins
        (f"{FILE_SIZE:020d}", FILE_SIZE + 1),  # longer than it may be
        (f"{FILE_SIZE:019d}", FILE_SIZE),
        ("0000000000000000000x", FILE_SIZE),
    ],
)
def test_files_that_cannot_be_the_queues_are_damage(tmp_path: Path, name: str, size: int) -> None:
    put_all(open_queue(tmp_path), 0, 5)
    (tmp_path / "orders" / "0" / name).write_bytes(bytes(size))

    with pytest.raises(DamagedQueueError):
        open_queue(tmp_path)


def test_a_file_cut_short_before_the_last_is_damage(tmp_path: Path) -> None:
    put_all(open_queue(tmp_path), 0, 7)
    os.truncate(tmp_path / "orders" / "0" / f"{0:020d}", 99)

    with pytest.raises(DamagedQueueError, match="expected 100 bytes, found 99"):
        open_queue(tmp_path)


def test_a_file_that_shrinks_under_the_queue_is_noticed(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    put_all(queue, 0, 3)
    os.truncate(tmp_path / "orders" / "0" / f"{0:020d}", 45)

    with pytest.raises(DamagedQueueError, match="ends before its entries do"):
        queue.entry(2)


def test_a_cut_leaves_nothing_that_could_come_back(tmp_path: Path) -> None:
    """Exhaustive over the cut, between records and inside them."""
    for cut in range(900, 2500, 50):
        root = tmp_path / str(cut)
        queue = open_queue(root)
        put_all(queue, 2, 14)
        kept = min(max(-(-(cut - 1000) // 100), 2), 14)

        queue.truncate(cut)

        is_empty = kept == 2
        assert queue.max_offset == kept
        assert queue.max_physical_offset == (cut if is_empty else 1000 + 100 * kept)
        assert rows(queue) == expected_rows(2, kept)
        written = 2 * FILLER + b"".join(encode_entry(*row) for row in expected_rows(2, kept))
        content = b"".join(content for content in files_of(root).values())
        assert content == written.ljust(len(content), b"\0")
        reopened = open_queue(root)
        assert (reopened.min_offset, rows(reopened)) == (2, expected_rows(2, kept))
        put_all(queue, kept, 16)
        assert rows(queue) == expected_rows(2, 16)


@pytest.mark.parametrize("room", [0, 19, 20, 39, 85, 99])
def test_on_a_full_disk_whole_entries_count_and_the_rest_goes_on_later(
    tmp_path: Path, room: int
) -> None:
    queue = open_queue(tmp_path)
    with file_size_limit(FILE_SIZE):
        put_all(queue, 0, 5)  # the file is as long as it will be
    other = open_queue(tmp_path / "other")
    put_all(other, 5, 6)  # padded, and its file too

    with file_size_limit(room), pytest.raises(OSError, match=r"room|too large"):
        other.put_run(6, columns(6, 12))
    written = max((room - ENTRY_SIZE) // ENTRY_SIZE, 0)
    assert rows(other) == expected_rows(5, 6 + written)

    assert other.put_run(6, columns(6, 12)) == 6 - written
    assert rows(open_queue(tmp_path / "other")) == expected_rows(5, 12)


def test_on_a_full_disk_a_file_that_could_not_be_made_is_made_later(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)

    with file_size_limit(FILE_SIZE - 1), pytest.raises(OSError, match="too large"):
        queue.put(7, 1700, 100, -7)
    assert (queue.min_offset, queue.max_offset) == (0, 0)

    put_all(queue, 7, 9)
    assert rows(open_queue(tmp_path)) == expected_rows(7, 9)


@pytest.mark.parametrize("in_files", [0, 3, 5, 8])
@pytest.mark.parametrize("expired", [1, 5, 9, 12, 18])
def test_entries_held_in_memory_may_expire_before_there_is_room(
    tmp_path: Path, in_files: int, expired: int
) -> None:
    holding = HeldEntries()
    queue = open_queue(tmp_path, holding=holding)
    if in_files:
        put_all(queue, 0, in_files)
    holding.is_allowed = True
    with file_size_limit(0):
        queue.put_run(in_files, columns(in_files, 18))
    holding.is_allowed = False
    assert rows(queue) == expected_rows(0, 18)

    queue.delete_expired(1000 + 100 * expired)
    assert rows(queue) == expected_rows(expired, 18)
    holding.settle()
    queue.put_run(18, columns(18, 30))

    assert rows(queue) == expected_rows(expired, 30)
    names = sorted(path.name for path in (tmp_path / "orders" / "0").iterdir())
    first = min(expired, 17) // PER_FILE
    assert names == [f"{number * FILE_SIZE:020d}" for number in range(first, 6)]
    again = open_queue(tmp_path)
    again.correct_min(1000 + 100 * expired)
    assert rows(again) == expected_rows(expired, 30)
