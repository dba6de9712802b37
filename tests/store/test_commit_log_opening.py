"""The commit log is opened: files that do not belong together are refused, short ones are cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import Record, encode_record
from eruca_broker.store.log.commit_log import CommitLog, CorruptLogError
from support.small_logs import SIZE, blank, content, name, padded, write_segments


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
