"""The commit log: where records go, how it rolls, and that a failed write leaves no trace."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import MAGIC_BLANK, Record, encode_record
from eruca_broker.store.log.commit_log import CommitLog, CorruptLogError
from eruca_broker.store.log.segment import Segment
from support.limits import file_size_limit

SIZE = 1_024  # bytes of a segment


def name(offset: int) -> str:
    return f"{offset:020d}"


def empty_log(directory: Path, size: int = SIZE) -> CommitLog:
    """Return a log with one segment, in which nothing is written."""
    log = CommitLog.open(directory, size)
    log.set_end(0, is_tail_clean=True)
    log.roll()
    log.write()
    return log


def add(log: CommitLog, data: bytes) -> int:
    return log.add(memoryview(data))


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def padded(*parts: bytes) -> bytes:
    return b"".join(parts).ljust(SIZE, b"\0")


def blank(size: int) -> bytes:
    return size.to_bytes(4) + MAGIC_BLANK.to_bytes(4)


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


# --- Opening --------------------------------------------------------------------------------------


def write_segments(directory: Path, *sizes: int, first: int = 0) -> None:
    directory.mkdir(exist_ok=True)
    offset = first
    for size in sizes:
        (directory / name(offset)).write_bytes(b"s" * size)
        offset += SIZE


def test_the_length_of_the_files_wins_over_the_setting(tmp_path: Path) -> None:
    write_segments(tmp_path, SIZE, SIZE)

    log = CommitLog.open(tmp_path, 4 * SIZE)
    log.set_end(SIZE + 7, is_tail_clean=True)
    log.roll()

    assert list(content(tmp_path)) == [name(0), name(SIZE), name(2 * SIZE)]
    assert log.segment_bytes == SIZE


def test_a_log_may_begin_anywhere(tmp_path: Path) -> None:
    write_segments(tmp_path, SIZE, SIZE, first=3 * SIZE)

    log = CommitLog.open(tmp_path, SIZE)

    assert (log.min_offset, log.allocated_offset) == (3 * SIZE, 5 * SIZE)
    assert [log.segment_start(offset) // SIZE for offset in (0, 3 * SIZE, 4 * SIZE - 1)] == [
        3,
        3,
        3,
    ]
    assert [log.segment_start(offset) // SIZE for offset in (4 * SIZE, 9 * SIZE)] == [4, 4]


@pytest.mark.parametrize(
    ("sizes", "lost"),
    [
        ((SIZE, SIZE, SIZE), 1),
        ((SIZE, SIZE - 1, SIZE), None),
        ((SIZE, 0, SIZE), None),
        ((SIZE - 1, SIZE), None),
        ((SIZE, SIZE + 1), None),
    ],
    ids=["missing", "cut", "empty", "first cut", "too long"],
)
def test_files_that_do_not_follow_each_other_are_refused_and_left_alone(
    tmp_path: Path, sizes: tuple[int, ...], lost: int | None
) -> None:
    write_segments(tmp_path, *sizes)
    if lost is not None:
        (tmp_path / name(lost * SIZE)).unlink()
    before = content(tmp_path)

    with pytest.raises(CorruptLogError, match="does not follow"):
        CommitLog.open(tmp_path, SIZE)

    assert content(tmp_path) == before


def test_foreign_files_are_passed_over_and_misnamed_ones_refused(tmp_path: Path) -> None:
    write_segments(tmp_path, SIZE)
    (tmp_path / "notes.txt").write_text("not a segment")
    assert len(CommitLog.open(tmp_path, SIZE).segments) == 1
    (tmp_path / "17").write_bytes(bytes(SIZE))

    with pytest.raises(CorruptLogError, match="17"):
        CommitLog.open(tmp_path, SIZE)


@pytest.mark.parametrize("size", [0, 1, 500, SIZE - 1])
def test_a_last_file_that_a_crash_left_short_is_removed_where_it_holds_nothing(
    tmp_path: Path, size: int
) -> None:
    write_segments(tmp_path, SIZE, size)
    log = CommitLog.open(tmp_path, SIZE)
    assert len(content(tmp_path)[name(SIZE)]) == size  # not before the log's end is known

    log.set_end(SIZE, is_full=True, is_tail_clean=False)

    assert list(content(tmp_path)) == [name(0)]
    log.roll()
    assert list(content(tmp_path)) == [name(0), name(SIZE)]


@pytest.mark.parametrize("is_tail_clean", [False, True])
def test_a_last_file_that_was_cut_behind_its_records_gets_its_length_back(
    tmp_path: Path, is_tail_clean: bool
) -> None:
    write_segments(tmp_path, SIZE, 500)
    log = CommitLog.open(tmp_path, SIZE)

    log.set_end(SIZE + 500, is_tail_clean=is_tail_clean)

    assert content(tmp_path)[name(SIZE)] == padded(b"s" * 500)
    assert log.fits(SIZE - 508)


def test_what_is_behind_the_end_goes(tmp_path: Path) -> None:
    write_segments(tmp_path, SIZE, SIZE, SIZE)
    log = CommitLog.open(tmp_path, SIZE)

    log.set_end(300, is_tail_clean=False)

    assert content(tmp_path) == {name(0): padded(b"s" * 300)}
    assert log.end_offset == log.written_offset == 300


def test_a_segment_left_prepared_behind_a_full_one_is_the_current_one(tmp_path: Path) -> None:
    write_segments(tmp_path, SIZE, SIZE)
    log = CommitLog.open(tmp_path, SIZE)

    log.set_end(SIZE, is_full=True, is_tail_clean=False)

    assert content(tmp_path)[name(SIZE)] == padded()
    assert log.fits(SIZE - 8)


CONTROL_RECORD = encode_record(Record(topic=EVENTS_TOPIC, body=b"{}"))
FOREIGN_RECORD = encode_record(Record(topic="orders", body=b"{}"))


@pytest.mark.parametrize(
    ("record", "stopped_cleanly", "expected"),
    [
        (CONTROL_RECORD, False, 4 * SIZE),
        (CONTROL_RECORD, True, 200),
        (FOREIGN_RECORD, False, 200),
    ],
    ids=["ours after a crash", "ours, closed in order", "not ours"],
)
def test_an_only_segment_that_was_cut_is_made_as_long_as_the_setting_says(
    tmp_path: Path, record: bytes, stopped_cleanly: bool, expected: int
) -> None:
    (tmp_path / name(0)).write_bytes(record.ljust(200, b"\0"))

    log = CommitLog.open(tmp_path, 4 * SIZE, stopped_cleanly=stopped_cleanly)
    log.set_end(len(record), is_tail_clean=stopped_cleanly)

    assert log.segment_bytes == log.segments[0].size == expected
    assert content(tmp_path)[name(0)] == record.ljust(expected, b"\0")


def test_an_only_segment_that_is_full_keeps_its_length(tmp_path: Path) -> None:
    full = CONTROL_RECORD + blank(SIZE - len(CONTROL_RECORD))
    (tmp_path / name(0)).write_bytes(full.ljust(SIZE, b"\0"))

    log = CommitLog.open(tmp_path, 4 * SIZE, stopped_cleanly=False)
    log.set_end(SIZE, is_full=True, is_tail_clean=False)
    log.roll()

    assert [len(data) for data in content(tmp_path).values()] == [SIZE, SIZE]


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
