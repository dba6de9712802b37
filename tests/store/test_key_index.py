"""The key index: what was put is found, and damage is dropped and named."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca_broker.core.index.layout import (
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    entry_position,
    file_size,
    slot_position,
)
from eruca_broker.store.index import index_pages, look_ups
from eruca_broker.store.index.index_file import DamagedIndexError
from eruca_broker.store.index.key_index import KeyIndex
from support.limits import file_size_limit, open_files_limit

SLOTS = 5
ENTRIES = 9  # so eight keys to a file
FILE_SIZE = file_size(SLOTS, ENTRIES)
NOON = 1_700_000_000_000  # ms
FIRST_NAME = "20231114221320000"
Row = tuple[int, int, int]  # key hash, log offset, store timestamp


def open_index(
    root: Path, *, limit: int | None = None, digests: Mapping[str, int] | None = None
) -> KeyIndex:
    return KeyIndex.open(
        root / "index",
        hash_slots=SLOTS,
        max_entries=ENTRIES,
        zone=ZoneInfo("UTC"),
        limit=limit,
        digests=digests,
    )


def put(index: KeyIndex, rows: list[Row]) -> None:
    hashes, offsets, timestamps = ([row[n] for row in rows] for n in range(3))
    index.put_many(
        np.array(hashes, np.int32), np.array(offsets, np.int64), np.array(timestamps, np.int64)
    )


def some_rows(first: int, last: int) -> list[Row]:
    """Rows of records of 100 bytes, one every 700 ms: three hashes, two to a slot."""
    return [(7 if n % 3 else n % 4, 100 * n, NOON + 700 * n) for n in range(first, last)]


def found(index: KeyIndex, key_hash: int) -> list[int]:
    return index.query(key_hash, 1000)


def newest_first(rows: list[Row], key_hash: int) -> list[int]:
    return [offset for hashed, offset, _ in reversed(rows) if hashed == key_hash]


def assert_holds(index: KeyIndex, rows: list[Row]) -> None:
    for key_hash in {row[0] for row in rows} | {0, 1, 7, 12}:
        assert found(index, key_hash) == newest_first(rows, key_hash)
        assert list(index.candidates(key_hash)) == newest_first(rows, key_hash)


def files_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "index").iterdir())}


def overwrite(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def flip(path: Path, position: int, bits: int) -> None:
    overwrite(path, position, bytes([path.read_bytes()[position] ^ bits]))


rows_lists = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 3), st.integers(0, 2500)), max_size=40
).map(
    lambda steps: [
        (
            key_hash,
            sum(step[1] for step in steps[: n + 1]),
            NOON + sum(step[2] for step in steps[: n + 1] if step[1]),  # a record has one time
        )
        for n, (key_hash, _, _) in enumerate(steps)
    ]
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


@pytest.mark.parametrize("passed_count", [1, 2, look_ups._PASSED_COUNT])
@given(rows_lists, st.integers(-3000, 60_000), st.integers(-3000, 60_000))
@settings(max_examples=60, deadline=None)
def test_no_record_stored_in_the_window_is_left_out_of_the_candidates(
    tmp_path_factory: pytest.TempPathFactory,
    passed_count: int,
    rows: list[Row],
    begin: int,
    end: int,
) -> None:
    """The lookup follows the chains to the window, or searches the window's entries."""
    index = open_index(tmp_path_factory.mktemp("index"))
    put(index, rows)
    begin, end = NOON + min(begin, end), NOON + max(begin, end)

    for key_hash in {row[0] for row in rows}:
        wanted = [o for h, o, stored in reversed(rows) if h == key_hash and begin <= stored <= end]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(look_ups, "_PASSED_COUNT", passed_count)
            patch.setattr(look_ups, "_SEARCH_COUNT", 2)
            candidates = list(index.candidates(key_hash, begin, end))

        assert [offset for offset in candidates if offset in wanted] == wanted
        assert set(candidates) <= set(newest_first(rows, key_hash))
    index.close()


def test_candidates_from_other_times_are_mostly_left_out(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, [(7, 100 * n, NOON + 10_000 * n) for n in range(40)])

    candidates = list(index.candidates(7, NOON + 200_000, NOON + 209_999))

    assert candidates[0] == 2000
    assert len(candidates) <= 2  # the first of a file has no time of its own
    index.close()


@pytest.mark.parametrize("key_hash", [7, 12])  # of one slot; nothing has the latter
def test_what_is_newer_than_the_window_is_not_walked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key_hash: int
) -> None:
    index = KeyIndex.open(tmp_path / "index", hash_slots=SLOTS, max_entries=100_000)
    put(index, [(7, n, NOON + 10 * n) for n in range(90_000)])
    read = Mock(wraps=index_pages.read_entries)
    monkeypatch.setattr(index_pages, "read_entries", read)

    candidates = list(index.candidates(key_hash, NOON + 1_000, NOON + 1_999))

    assert set(candidates) >= set(range(100, 200)) or key_hash == 12
    assert sum(call.args[3] for call in read.call_args_list) < 4_000
    index.close()


def test_long_chains_are_walked_through_blocks(tmp_path: Path) -> None:
    index = KeyIndex.open(tmp_path / "index", hash_slots=SLOTS, max_entries=5_000)
    rows = [(7 if n % 2 else 2, n, NOON) for n in range(4_000)]
    put(index, rows)

    assert index.query(7, 5_000) == newest_first(rows, 7)
    assert index.query(7, 3) == newest_first(rows, 7)[:3]
    assert index.query(7, 0) == []
    index.close()


def test_a_query_looks_only_into_files_of_its_time(tmp_path: Path) -> None:
    """RocketMQ's rule: by whole seconds, and no further back than the first file that is older."""
    index = open_index(tmp_path)
    put(index, [(7, 100 * n, NOON + 10_000 * n) for n in range(40)])

    assert index.query(7, 100, NOON, NOON + 20_000) == [200, 100, 0]
    assert index.query(7, 100, NOON + 20_500, NOON + 29_999) == []
    assert index.query(7, 100, NOON + 390_000) == [3900]
    assert index.query(7, 3) == [3900, 3800, 3700]
    index.close()


def test_full_files_are_sealed_before_their_digest_is_taken(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, some_rows(0, 12))

    digests = index.digests()

    index.save()
    assert index.digests() == digests
    index.close()
    index = open_index(tmp_path, digests=digests)
    assert index.damaged == []
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


def test_slots_are_on_disk_once_a_file_is_full_or_saved(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, some_rows(0, 12))
    assert index.saved_timestamp == 0

    index.flush()
    assert index.saved_timestamp == NOON + 700 * 7
    index.save()
    assert index.saved_timestamp == NOON + 700 * 11
    put(index, some_rows(12, 13))
    assert index.saved_timestamp == NOON + 700 * 7
    index.close()


def test_few_full_files_wait_in_memory_for_their_flush(tmp_path: Path) -> None:
    index = open_index(tmp_path)

    put(index, some_rows(0, 100))

    waiting = [file for file in index._files if file.slots is not None]
    assert len(waiting) == 3  # two that are full, and the newest
    assert_holds(index, some_rows(0, 100))
    index.close()


def test_full_files_that_a_full_disk_lets_nobody_finish_wait_in_memory_and_are_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_index(tmp_path)
    pwrite = os.pwrite

    def write(descriptor: int, data: bytes, position: int) -> int:
        if position < HEADER_SIZE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write)
        put(index, some_rows(0, 100))

    assert index.flush_error is None
    assert_holds(index, some_rows(0, 100))
    index.flush()
    index.close()
    index = open_index(tmp_path, limit=10_000)
    assert_holds(index, some_rows(0, 100))
    index.close()


def test_an_almost_empty_file_stays_almost_empty_on_disk(tmp_path: Path) -> None:
    index = KeyIndex.open(tmp_path / "index")
    put(index, some_rows(0, 3))

    index.save()

    (path,) = (tmp_path / "index").iterdir()
    assert path.stat().st_size == 420_000_040
    assert path.stat().st_blocks * 512 < 100_000
    index.close()


def test_a_flush_may_run_while_more_is_put(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, some_rows(0, 12))
    taken = index.take_unflushed()
    put(index, some_rows(12, 30))

    taken.sync()
    index.close()

    index = open_index(tmp_path, limit=1200)
    assert_holds(index, some_rows(0, 12))
    index.close()


def test_a_flush_passes_over_files_deleted_meanwhile(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, some_rows(0, 12))
    taken = index.take_unflushed()
    index.delete_expired(800)

    taken.sync()

    assert_holds(index, some_rows(8, 12))
    index.close()


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_a_flush_that_failed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    index = open_index(tmp_path)
    put(index, some_rows(0, 12))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, Mock(side_effect=OSError(errno.EIO, "lost pages")))
        with pytest.raises(OSError, match="lost pages"):
            index.flush()

    put(index, some_rows(12, 14))
    index.take_unflushed()  # and is not synced either
    index.flush()

    index.close()
    index = open_index(tmp_path, limit=1400)
    assert_holds(index, some_rows(0, 14))
    index.close()


@pytest.mark.parametrize("first", range(9))
def test_on_a_full_disk_nothing_is_put_and_all_of_it_later(tmp_path: Path, first: int) -> None:
    """The disk refuses the first file's entries, or the file after it."""
    for limit in (0, 100, entry_position(SLOTS, 5), FILE_SIZE - 1):
        root = tmp_path / str(limit)
        index = open_index(root)
        put(index, some_rows(0, first))
        before = [
            (file.header, file.slots.tolist()) for file in index._files if file.slots is not None
        ]

        with file_size_limit(limit), pytest.raises(OSError, match="too large"):
            put(index, some_rows(first, 30))

        after = [
            (file.header, file.slots.tolist()) for file in index._files if file.slots is not None
        ]
        assert after == before
        assert_holds(index, some_rows(0, first))
        assert len(files_of(root)) == (first > 0)
        put(index, some_rows(first, 30))
        assert_holds(index, some_rows(0, 30))
        index.save()
        index.close()
        reopened = open_index(root)
        assert reopened.damaged == []
        reopened.close()


@pytest.mark.parametrize("first", [3, 8])
@pytest.mark.parametrize("more", range(3))
def test_where_a_further_file_cannot_be_made_nothing_is_put_into_the_others(
    tmp_path: Path, first: int, more: int
) -> None:
    index = open_index(tmp_path)
    put(index, some_rows(0, first))

    with open_files_limit(more), pytest.raises(OSError, match="Too many open files"):
        put(index, some_rows(first, 60))

    assert_holds(index, some_rows(0, first))
    assert list(files_of(tmp_path)) == [FIRST_NAME]
    put(index, some_rows(first, 60))
    assert_holds(index, some_rows(0, 60))
    index.save()
    index.close()
    reopened = open_index(tmp_path)
    assert reopened.damaged == []
    assert_holds(reopened, some_rows(0, 60))
    reopened.close()


def closed(root: Path, last: int = 30) -> dict[str, int]:
    """Return the digests of an index of four files, the last one not full."""
    index = open_index(root)
    put(index, some_rows(0, last))
    index.save()
    digests = index.digests()
    index.close()
    return digests


Damage = Callable[[Path], object]
DAMAGES: dict[str, Damage] = {
    "the size": lambda path: os.truncate(path, FILE_SIZE - 1),
    "no content": lambda path: path.write_bytes(b""),
    "a count beyond the capacity": lambda path: overwrite(path, 36, b"\x00\x00\x00\x0a"),
    "a negative count": lambda path: overwrite(path, 36, b"\xff\xff\xff\xff"),
    "the end offset": lambda path: overwrite(path, 31, b"\xff"),
    "the first entry's offset": lambda path: overwrite(
        path, entry_position(SLOTS, 1) + 11, b"\xff"
    ),
    "another file's content": lambda path: path.write_bytes(
        sorted(path.parent.iterdir())[0].read_bytes()
    ),
    "the file": lambda path: path.unlink(),
}
DAMAGES_OF_CONTENT: dict[str, Damage] = {
    "a slot": lambda path: flip(path, slot_position(2) + 3, 0x01),
    "a hash": lambda path: flip(path, entry_position(SLOTS, 3) + 3, 0x02),
    "a time": lambda path: flip(path, entry_position(SLOTS, 3) + 15, 0x40),
    "a chain": lambda path: flip(path, entry_position(SLOTS, 3) + 19, 0x01),
    "an offset": lambda path: flip(path, entry_position(SLOTS, 3) + 10, 0x40),
    "the slot count": lambda path: flip(path, 35, 0x04),
}


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("damage", [*DAMAGES, *DAMAGES_OF_CONTENT])
def test_a_damaged_file_is_dropped_with_those_after_it_and_can_be_put_again(
    tmp_path: Path, damage: str, number: int
) -> None:
    digests = closed(tmp_path)
    before = files_of(tmp_path)
    path = tmp_path / "index" / sorted(digests)[number]
    if damage == "another file's content" and number == 0:
        return  # that is its own
    if damage == "a slot" and number == 3:
        return  # the slots of a file that is not full are computed
    (DAMAGES | DAMAGES_OF_CONTENT)[damage](path)

    index = open_index(tmp_path, digests=digests)

    assert [name for name, _ in index.damaged] == [path.name]
    assert index.resume_offset == (100 * (8 * number - 1) if number else 0)
    assert index.resume_offset is not None
    assert_holds(index, some_rows(0, 8 * number - 1))
    put(index, [row for row in some_rows(0, 30) if row[1] >= index.resume_offset])
    assert_holds(index, some_rows(0, 30))
    index.save()
    index.close()
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_digests_a_file_whose_header_is_wrong_is_found(tmp_path: Path, damage: str) -> None:
    digests = closed(tmp_path)
    path = tmp_path / "index" / sorted(digests)[1]
    DAMAGES[damage](path)

    index = open_index(tmp_path)

    dropped = sorted(digests)[2 if damage == "the file" else 1]
    if damage == "the file":  # nothing tells that there was one, but that offsets jump
        assert index.damaged == []
    else:
        assert [name for name, _ in index.damaged] == [dropped]
    index.close()


@pytest.mark.parametrize(
    "damage", [name for name in DAMAGES_OF_CONTENT if name not in ("a slot", "a time")]
)
def test_without_digests_the_newest_file_is_proved_by_its_chains(
    tmp_path: Path, damage: str
) -> None:
    digests = closed(tmp_path)
    path = tmp_path / "index" / sorted(digests)[3]
    DAMAGES_OF_CONTENT[damage](path)

    index = open_index(tmp_path)

    assert [name for name, _ in index.damaged] == [path.name]
    assert_holds(index, some_rows(0, 23))
    index.close()


def test_a_file_more_than_there_were_is_dropped(tmp_path: Path) -> None:
    digests = closed(tmp_path, 32)
    name = "20991231235959999"
    (tmp_path / "index" / name).write_bytes(bytes(FILE_SIZE))

    index = open_index(tmp_path, digests=digests)

    assert [damaged for damaged, _ in index.damaged] == [name]
    assert list(files_of(tmp_path)) == sorted(digests)
    index.close()


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    digests = closed(tmp_path)
    (tmp_path / "index" / "notes.txt").touch()

    index = open_index(tmp_path, digests=digests)

    assert index.damaged == []
    assert (tmp_path / "index" / "notes.txt").exists()
    index.close()


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("previous", range(-1, 10))
def test_what_a_broken_chain_led_to_is_found_all_the_same(
    tmp_path: Path, number: int, previous: int
) -> None:
    """A broken chain leads anywhere, unless it ends there or skips entries it should have."""
    digests = closed(tmp_path)
    index = open_index(tmp_path, digests=digests)
    path = tmp_path / "index" / FIRST_NAME
    slots = [row[0] % SLOTS for row in some_rows(0, 8)]  # of entries 1 to 8
    of_slot = [n for n in range(number) if n == 0 or slots[n - 1] == slots[number - 1]]
    if previous in of_slot:
        return  # nothing in the file tells that this is wrong

    overwrite(path, entry_position(SLOTS, number) + 16, previous.to_bytes(4, signed=True))

    for key_hash in (7, 0, 3, 2, 1):
        assert found(index, key_hash) == newest_first(some_rows(0, 30), key_hash)
        assert list(index.candidates(key_hash)) == newest_first(some_rows(0, 30), key_hash)
    assert FIRST_NAME not in index.digests()
    index.close()


def test_the_entries_behind_a_broken_chain_are_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_ups, "_SEARCH_COUNT", 3)
    digests = closed(tmp_path)
    index = open_index(tmp_path, digests=digests)
    overwrite(tmp_path / "index" / FIRST_NAME, entry_position(SLOTS, 8) + 16, b"\x7f")

    assert found(index, 7) == newest_first(some_rows(0, 30), 7)
    index.close()


def test_a_file_that_was_cut_while_it_was_used_is_named(tmp_path: Path) -> None:
    digests = closed(tmp_path)
    index = open_index(tmp_path, digests=digests)
    os.truncate(tmp_path / "index" / FIRST_NAME, entry_position(SLOTS, 5))

    with pytest.raises(DamagedIndexError, match=f"{FIRST_NAME}: it ends before entry"):
        found(index, 7)
    index.close()


def test_a_slot_beyond_the_entries_is_empty(tmp_path: Path) -> None:
    """RocketMQ leaves such slots behind when it loses entries."""
    closed(tmp_path, 8)
    index = open_index(tmp_path)
    path = tmp_path / "index" / FIRST_NAME
    overwrite(path, HEADER_SIZE, b"\x00\x00\x00\x63" * SLOTS)

    assert found(index, 7) == []

    overwrite(path, HEADER_SIZE, b"\xff" * SLOT_SIZE * SLOTS)
    assert found(index, 7) == []
    index.close()


def test_damage_found_by_a_cut_is_dropped_as_well(tmp_path: Path) -> None:
    """A full file's chains are not checked until it is opened for writing again."""
    closed(tmp_path)
    names = sorted(files_of(tmp_path))
    overwrite(tmp_path / "index" / names[1], entry_position(SLOTS, 3) + 19, b"\x07")

    index = open_index(tmp_path, limit=1200)

    assert [name for name, _ in index.damaged] == [names[1]]
    assert index.resume_offset == 700
    assert list(files_of(tmp_path)) == names[:1]
    put(index, [row for row in some_rows(0, 30) if row[1] >= 700])
    assert_holds(index, some_rows(0, 30))
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


def test_an_empty_newest_file_whose_header_was_never_written_is_no_damage(tmp_path: Path) -> None:
    closed(tmp_path, 8)
    (tmp_path / "index" / "20231114221420000").write_bytes(bytes(FILE_SIZE))

    index = open_index(tmp_path)

    assert (index.damaged, index.end_offset) == ([], 700)
    index.close()


def test_a_header_tells_what_a_flush_made_durable_and_no_more(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, some_rows(0, 3))
    index.flush()
    put(index, some_rows(3, 5))

    content = (tmp_path / "index" / FIRST_NAME).read_bytes()

    header = IndexHeader(NOON, NOON + 1400, 0, 200, 2, 4)
    assert content[:HEADER_SIZE] == header.encode()
    index.close()
