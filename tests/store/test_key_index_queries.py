"""Queries of the key index: no record of the time is left out, and few others are looked at."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca_broker.store.index import index_pages, look_ups
from eruca_broker.store.index.key_index import KeyIndex
from support.key_indexes import NOON, SLOTS, Row, newest_first, open_index, put, rows_lists


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
