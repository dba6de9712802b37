"""The commit log: records back to back in segments that are made ahead, flushed and deleted."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.log.segment import Segment
from support.limits import file_size_limit
from support.small_logs import SIZE, blank, content, name, padded, write_segments


def empty_log(directory: Path, size: int = SIZE) -> CommitLog:
    """Return a log with one segment, in which nothing is written."""
    log = CommitLog.open(directory, size)
    log.set_end(0, is_tail_clean=True)
    log.roll()
    log.write()
    return log


def add(log: CommitLog, data: bytes) -> int:
    return log.add(memoryview(data))


# --- Appending ------------------------------------------------------------------------------------


def test_records_lie_back_to_back_and_are_readable_once_written(tmp_path: Path) -> None:
    log = empty_log(tmp_path)

    assert [add(log, b"one"), add(log, b"three")] == [0, 3]
    assert (log.written_offset, log.end_offset) == (0, 8)
    assert log.segment_at(0) is None
    log.write()

    assert log.written_offset == 8
    assert bytes(log.view(3, 5)) == b"three"
    assert content(tmp_path) == {name(0): padded(b"onethree")}


@pytest.mark.parametrize("room", [8, 9, 100])
def test_a_roll_marks_the_rest_of_the_segment_by_a_blank_record(tmp_path: Path, room: int) -> None:
    log = empty_log(tmp_path)
    first = b"x" * (SIZE - room)
    add(log, first)

    log.roll()
    assert add(log, b"two") == SIZE
    log.write()

    assert content(tmp_path) == {
        name(0): first + blank(room) + bytes(room - 8),
        name(SIZE): padded(b"two"),
    }
    assert log.end_offset == SIZE + 3


@pytest.mark.parametrize(("size", "fits"), [(SIZE - 8, True), (SIZE - 7, False), (SIZE, False)])
def test_what_fits_leaves_room_for_a_blank_record(tmp_path: Path, size: int, fits: bool) -> None:
    assert empty_log(tmp_path).fits(size) is fits


def test_nothing_fits_into_a_log_without_segments(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path, SIZE)

    assert not log.fits(1)
    assert (log.min_offset, log.allocated_offset, log.segment_start(5)) == (0, 0, 0)


def test_one_write_may_span_segments(tmp_path: Path) -> None:
    log = empty_log(tmp_path)
    for number in range(5):
        log.add(memoryview(bytes([number + 1]) * 600))
        log.roll()

    log.write()

    files = content(tmp_path)
    assert list(files) == [name(number * SIZE) for number in range(6)]
    for number in range(5):
        record = bytes([number + 1]) * 600
        assert files[name(number * SIZE)] == padded(record, blank(SIZE - 600))
    segment = log.segment_at(4 * SIZE + 599)
    assert segment is not None
    assert segment.base_offset == 4 * SIZE


def test_nothing_of_a_write_can_be_found_before_all_of_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = empty_log(tmp_path)
    write = Segment.write
    begins: list[bytes] = []

    def look_and_write(self: Segment, buffers: Sequence[memoryview], position: int) -> None:
        begins.append((tmp_path / name(0)).read_bytes()[:8])
        write(self, buffers, position)

    monkeypatch.setattr(Segment, "write", look_and_write)
    add(log, b"a" * 600)
    log.roll()
    add(log, b"b" * 600)
    log.write()

    assert begins == [bytes(8)] * 3
    assert content(tmp_path) == {
        name(0): padded(b"a" * 600, blank(SIZE - 600)),
        name(SIZE): padded(b"b" * 600),
    }


# --- A failed write -------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 3, 4, 10, 504, 903, 904, 911, 912, 1_009])
def test_a_failed_write_takes_everything_back(tmp_path: Path, limit: int) -> None:
    log = empty_log(tmp_path)
    add(log, b"kept")
    log.write()
    before = content(tmp_path)

    add(log, b"a" * 500)
    add(log, b"b" * 400)
    log.roll()
    add(log, b"c" * 300)
    log.roll()
    add(log, b"d" * 1_010)
    with file_size_limit(limit), pytest.raises(OSError, match="too large") as failure:
        log.write()

    assert failure.value.errno == errno.EFBIG
    assert content(tmp_path) == before
    assert (log.end_offset, log.written_offset, len(log.segments)) == (4, 4, 1)
    assert add(log, b"next") == 4
    log.write()
    assert content(tmp_path) == {name(0): padded(b"keptnext")}


def test_what_was_added_can_be_taken_back_before_it_is_written(tmp_path: Path) -> None:
    log = empty_log(tmp_path)
    add(log, b"one")
    log.roll()

    log.take_back()
    log.write()

    assert content(tmp_path) == {name(0): padded()}
    assert log.end_offset == 0


def test_bytes_that_could_not_be_cut_at_once_are_cut_before_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails takes no zeros either."""
    log = empty_log(tmp_path)
    add(log, b"lost and stale")

    def fail(self: Segment, position: int) -> None:
        raise OSError(errno.EIO, "no zeros either")

    with monkeypatch.context() as patch, file_size_limit(10):
        patch.setattr(Segment, "cut_tail", fail)
        with pytest.raises(OSError, match="too large"):
            log.write()
        add(log, b"lost as well")
        with pytest.raises(OSError, match="no zeros"):
            log.write()
    assert (tmp_path / name(0)).read_bytes().startswith(bytes(8) + b" s\0")

    add(log, b"next")
    log.write()

    assert content(tmp_path) == {name(0): padded(b"next")}


# --- Segments made ahead of need ------------------------------------------------------------------


def test_a_segment_made_ahead_is_the_next_one(tmp_path: Path) -> None:
    log = empty_log(tmp_path)
    log.prepare_next()
    log.prepare_next()
    assert list(content(tmp_path)) == [name(0), name(SIZE)]

    log.roll()
    add(log, b"two")
    log.write()

    assert (tmp_path / name(SIZE)).read_bytes() == padded(b"two")
    assert list(content(tmp_path)) == [name(0), name(SIZE)]


def test_a_segment_made_ahead_is_gone_after_an_orderly_close(tmp_path: Path) -> None:
    log = empty_log(tmp_path)
    log.prepare_next()

    log.close()

    assert list(content(tmp_path)) == [name(0)]


def test_a_segment_made_to_follow_one_that_was_taken_back_goes_with_it(tmp_path: Path) -> None:
    """A crash would leave a gap among the files, and the log could not be opened any more."""
    log = empty_log(tmp_path)
    log.roll()
    log.prepare_next()

    log.take_back()

    assert list(content(tmp_path)) == [name(0)]
    log.roll()
    log.write()
    assert list(content(tmp_path)) == [name(0), name(SIZE)]
    assert [segment.base_offset for segment in log.segments] == [0, SIZE]


def test_a_segment_that_cannot_be_removed_stops_the_next_roll_and_nothing_else(
    tmp_path: Path,
) -> None:
    log = empty_log(tmp_path)
    add(log, b"kept")
    log.write()
    log.roll()
    add(log, b"lost")
    (tmp_path / name(SIZE)).unlink()
    (tmp_path / name(SIZE)).mkdir()  # which cannot be unlinked

    log.take_back()

    assert (log.end_offset, len(log.segments)) == (4, 1)
    with pytest.raises(FileExistsError):
        log.roll()
    assert add(log, b"next") == 4
    log.write()
    assert (tmp_path / name(0)).read_bytes() == padded(b"keptnext")


def test_rolling_while_the_next_segment_is_being_made_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = empty_log(tmp_path)
    is_making, may_go_on = threading.Event(), threading.Event()
    create = Segment.create.__func__  # type: ignore[attr-defined]  # the function below the method

    def create_slowly(*arguments: object, **options: object) -> object:
        is_making.set()
        assert may_go_on.wait(20)
        return create(Segment, *arguments, **options)

    monkeypatch.setattr(Segment, "create", create_slowly)
    making = threading.Thread(target=log.prepare_next)
    making.start()
    assert is_making.wait(20)
    rolling = threading.Thread(target=log.roll)
    rolling.start()
    may_go_on.set()
    making.join(20)
    rolling.join(20)

    assert [segment.base_offset for segment in log.segments] == [0, SIZE]
    assert list(content(tmp_path)) == [name(0), name(SIZE)]


def test_a_segment_that_is_still_being_warmed_is_used_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an append would wait until a gigabyte of zeros is written."""
    log = empty_log(tmp_path)
    log.is_warming = True
    is_warming, may_go_on = threading.Event(), threading.Event()

    def warm(_: Segment) -> None:
        is_warming.set()
        assert may_go_on.wait(20)

    monkeypatch.setattr(Segment, "warm", warm)
    making = threading.Thread(target=log.prepare_next)
    making.start()
    assert is_warming.wait(20)

    log.roll()
    add(log, b"two")
    log.write()

    assert making.is_alive()
    assert (tmp_path / name(SIZE)).read_bytes() == padded(b"two")
    may_go_on.set()
    making.join(20)


# --- Retention and flushing -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "needed_from", "gone"),
    [(1, 9 * SIZE, 1), (2, 9 * SIZE, 2), (9, 9 * SIZE, 3), (9, 2 * SIZE, 2), (9, 2 * SIZE - 1, 1)],
)
def test_the_oldest_segments_expire_but_not_the_last_nor_what_is_needed(
    tmp_path: Path, count: int, needed_from: int, gone: int
) -> None:
    write_segments(tmp_path, SIZE, SIZE, SIZE, SIZE)
    log = CommitLog.open(tmp_path, SIZE)

    expired: list[int] = []
    while len(expired) < count and (segment := log.expired(needed_from)) is not None:
        expired.append(segment.base_offset)
        log.delete_oldest()

    assert expired == [number * SIZE for number in range(gone)]
    assert log.min_offset == gone * SIZE


def test_a_segment_that_the_disk_does_not_let_go_is_in_the_log_as_before(tmp_path: Path) -> None:
    write_segments(tmp_path, SIZE, SIZE, SIZE)
    log = CommitLog.open(tmp_path, SIZE)
    stuck, away = tmp_path / name(0), tmp_path / "away"
    stuck.rename(away)
    stuck.mkdir()  # what cannot be unlinked, even by root

    with pytest.raises(OSError, match=name(0)):
        log.delete_oldest()

    assert [segment.base_offset for segment in log.segments] == [0, SIZE, 2 * SIZE]
    assert log.segments[0].modified_at() > 0  # its file is open still
    stuck.rmdir()
    away.rename(stuck)
    log.delete_oldest()
    assert list(content(tmp_path)) == [name(SIZE), name(2 * SIZE)]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(0, SIZE, [0]), (0, SIZE + 1, [0, 1]), (SIZE, SIZE + 1, [1]), (SIZE - 1, 3 * SIZE, [0, 1, 2])],
)
def test_a_flush_is_of_the_segments_that_were_written_to(
    tmp_path: Path, first: int, last: int, expected: list[int]
) -> None:
    write_segments(tmp_path, SIZE, SIZE, SIZE, SIZE)
    log = CommitLog.open(tmp_path, SIZE)

    dirty = log.segments_between(first, last)

    assert [segment.base_offset // SIZE for segment in dirty] == expected
