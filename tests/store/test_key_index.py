"""The key index: files as RocketMQ writes them, cut and continued at any record."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.key_indexes import (
    FILE_SIZE,
    FIRST_NAME,
    NOON,
    Row,
    assert_holds,
    files_of,
    found,
    open_index,
    put,
    rows_lists,
    some_rows,
)


def batches_of(rows: list[Row], cuts: list[int]) -> list[list[Row]]:
    """Cut rows into batches, never between the keys of one record."""
    ends = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    ends = [n for n in ends if n in (0, len(rows)) or rows[n][1] != rows[n - 1][1]]
    return [rows[first:last] for first, last in pairwise(ends)]


@given(rows_lists, st.lists(st.integers(0, 50), max_size=5))
@settings(max_examples=60, deadline=None)
def test_batches_of_any_size_give_the_files_that_single_entries_give(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], cuts: list[int]
) -> None:
    one, many = (tmp_path_factory.mktemp(name) for name in ("one", "many"))
    single, index = open_index(one), open_index(many)
    for row in rows:
        put(single, [row])

    for batch in batches_of(rows, cuts):
        put(index, batch)

    assert_holds(index, rows)
    single.save()
    index.save()
    assert files_of(one) == files_of(many)
    assert single.digests() == index.digests()
    for opened in (single, index, open_index(many, digests=index.digests())):
        assert_holds(opened, rows)
        assert opened.damaged == []
        opened.close()


@given(rows_lists, st.lists(st.integers(0, 50), max_size=3), st.integers(0, 70))
@settings(max_examples=60, deadline=None)
def test_a_cut_removes_exactly_the_records_behind_it(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], cuts: list[int], limit: int
) -> None:
    root = tmp_path_factory.mktemp("index")
    index = open_index(root)
    for batch in batches_of(rows, cuts):
        put(index, batch)
    index.flush()

    index.truncate(limit)

    kept = [row for row in rows if row[1] < limit]
    assert_holds(index, kept)
    assert index.end_offset == (kept[-1][1] if kept else 0)
    put(index, [row for row in rows if row[1] >= limit])
    assert_holds(index, rows)
    index.save()
    digests = index.digests()
    index.close()
    reopened = open_index(root, digests=digests)
    assert reopened.damaged == []
    assert_holds(reopened, rows)
    reopened.close()


@given(rows_lists, st.lists(st.integers(0, 50), max_size=5), st.data())
@settings(max_examples=60, deadline=None)
def test_after_a_crash_the_index_continues_from_what_was_flushed(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], cuts: list[int], data: st.DataObject
) -> None:
    """Batches are put, flushed now and then, and cut off anywhere; then all are put again."""
    root = tmp_path_factory.mktemp("index")
    index = open_index(root)
    batches = batches_of(rows, cuts)
    limit = 0
    for batch in batches[: data.draw(st.integers(0, len(batches)))]:
        put(index, batch)
        if data.draw(st.booleans()):
            index.flush()
            limit = batch[-1][1] + 1
    index.close()

    index = open_index(root, limit=limit)

    assert_holds(index, [row for row in rows if row[1] < limit])
    assert index.resume_offset is None or index.resume_offset <= limit
    resume = limit if index.resume_offset is None else index.resume_offset
    put(index, [row for row in rows if row[1] >= resume])
    assert_holds(index, rows)
    index.close()


def test_records_the_index_has_are_passed_over(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    rows = some_rows(0, 12)
    put(index, rows)

    put(index, rows[:11])
    put(index, rows[4:8])

    assert_holds(index, rows)
    index.save()
    index.close()
    index = open_index(tmp_path)
    put(index, rows)  # now the newest record is known to be complete
    assert_holds(index, rows)
    put(index, [])
    index.close()


def test_a_record_at_the_very_start_of_the_log_is_known_too(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, [(1, 0, NOON)])
    index.save()
    index.close()

    index = open_index(tmp_path)
    put(index, [(1, 0, NOON)])

    assert found(index, 1) == [0]
    index.close()


def test_files_are_named_after_their_first_records_store_time(tmp_path: Path) -> None:
    index = open_index(tmp_path)

    put(index, some_rows(0, 17))

    names = [FIRST_NAME, "20231114221325600", "20231114221331200"]
    assert list(files_of(tmp_path)) == names
    assert {len(content) for content in files_of(tmp_path).values()} == {FILE_SIZE}
    index.close()


def test_room_is_made_without_an_entry(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, some_rows(0, 8))

    index.make_room(NOON + 60_000)
    index.make_room(NOON + 61_000)

    assert list(files_of(tmp_path)) == [FIRST_NAME, "20231114221420000"]
    assert (index.end_offset, index.end_timestamp) == (700, NOON + 4_900)
    index.close()


def test_an_empty_index_has_no_end(tmp_path: Path) -> None:
    index = open_index(tmp_path)

    assert (index.end_offset, index.end_timestamp, index.saved_timestamp) == (0, 0, 0)
    assert found(index, 7) == []
    assert index.digests() == {}
    index.flush()
    index.save()
    index.close()


def test_expired_files_are_deleted_and_never_the_newest(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, some_rows(0, 20))

    assert index.delete_expired(700) == 0
    assert index.delete_expired(701) == 1
    assert index.delete_expired(99_999) == 1
    assert list(files_of(tmp_path)) == ["20231114221331200"]
    assert_holds(index, some_rows(16, 20))
    index.flush()
    index.close()


def test_an_empty_newest_file_carries_its_predecessors_end(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, some_rows(0, 8))
    index.make_room(NOON + 60_000)
    index.save()
    digests = index.digests()
    index.close()

    index = open_index(tmp_path, digests=digests)

    assert index.damaged == []
    assert (index.end_offset, index.end_timestamp) == (700, NOON + 4_900)
    put(index, some_rows(7, 10))
    assert_holds(index, some_rows(0, 10))
    index.close()
