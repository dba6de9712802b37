"""The consume queue's entry: twenty bytes, one by one or by columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.core.consume_queue_entry import (
    ENTRY_SIZE,
    FILLER,
    build_entries,
    decode_entry,
    encode_entry,
    log_ends,
    sound_count,
    view_entries,
)
from support.rocketmq_rules import next_file_start

int64 = st.integers(-(1 << 63), (1 << 63) - 1)
entries = st.tuples(st.integers(0, 1 << 62), st.integers(1, (1 << 31) - 2), int64)


@given(entries)
def test_an_entry_comes_back_as_it_was_written(entry: tuple[int, int, int]) -> None:
    assert decode_entry(encode_entry(*entry)) == entry


@given(st.lists(entries, max_size=20))
def test_columns_give_the_bytes_that_single_entries_give(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array([row[n] for row in rows], np.int64) for n in range(3)]

    built = build_entries(*columns)

    assert built.tobytes() == b"".join(encode_entry(*row) for row in rows)
    assert [tuple(row) for row in view_entries(built.tobytes()).tolist()] == rows
    assert log_ends(built).tolist() == [offset + size for offset, size, _ in rows]


def test_an_entry_lies_where_its_start_says() -> None:
    data = encode_entry(1, 2, 3) + encode_entry(4, 5, -6)

    assert decode_entry(data, ENTRY_SIZE) == (4, 5, -6)
    assert decode_entry(data, ENTRY_SIZE).log_end == 9


def test_fillers_and_unwritten_bytes_are_told_from_entries() -> None:
    filler, unwritten, entry = map(decode_entry, (FILLER, bytes(20), encode_entry(0, 91, 0)))

    assert (filler.is_filler, unwritten.is_filler, entry.is_filler) == (True, False, False)
    assert (filler.is_written, unwritten.is_written, entry.is_written) == (True, False, True)


def test_an_entry_whose_log_offset_is_negative_was_not_written() -> None:
    assert not decode_entry(encode_entry(-1, 91, 0)).is_written


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 20))
def test_the_next_file_starts_at_the_next_multiple(offset: int, per_file: int) -> None:
    start = next_file_start(offset, per_file)

    assert start % per_file == 0
    assert offset < start <= offset + per_file


def test_after_a_crash_only_entries_in_log_order_below_the_limit_are_sound() -> None:
    good = [(0, 0x7FFF_FFFF, 0), (100, 50, 1), (150, 50, 2), (250, 50, 3)]
    bad = {
        "behind the limit": (400, 50, 4),
        "unwritten": (0, 0, 0),
        "torn at its front": (0, 50, 4),
        "torn in its log offset": (299, 50, 4),
        "negative": (-300, 50, 4),
        "of no size": (300, 0, 4),
        "padding": (0, 0x7FFF_FFFF, 0),
    }

    for reason, row in bad.items():
        rows = view_entries(b"".join(encode_entry(*r) for r in [*good, row, (350, 20, 5)]))
        assert sound_count(rows, 400) == len(good), reason
    assert sound_count(view_entries(b"".join(encode_entry(*row) for row in good)), 400) == len(good)
    assert sound_count(view_entries(b""), 400) == 0
