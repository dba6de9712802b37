"""The key index and the disk: flushes of full files, and a disk without room."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from eruca_broker.core.index.layout import HEADER_SIZE, IndexHeader, entry_position
from eruca_broker.store.index.key_index import KeyIndex
from support.key_indexes import (
    FILE_SIZE,
    FIRST_NAME,
    NOON,
    SLOTS,
    assert_holds,
    files_of,
    open_index,
    put,
    some_rows,
)
from support.limits import file_size_limit, open_files_limit


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


def test_a_header_tells_what_a_flush_made_durable_and_no_more(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, some_rows(0, 3))
    index.flush()
    put(index, some_rows(3, 5))

    content = (tmp_path / "index" / FIRST_NAME).read_bytes()

    header = IndexHeader(NOON, NOON + 1400, 0, 200, 2, 4)
    assert content[:HEADER_SIZE] == header.encode()
    index.close()
