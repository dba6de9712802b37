"""The index file's layout: positions, seconds, windows and names."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.core.index.layout import (
    SECONDS_MAX,
    IndexHeader,
    decode_header,
    encode_entries,
    entry_position,
    file_name,
    file_size,
    is_file_name,
    seconds_since,
    slot_position,
    view_entries,
)

NOVEMBER = 1_700_000_000_000  # 2023-11-14T22:13:20Z
timestamps = st.integers(-(1 << 50), 1 << 50)


def test_rocketmqs_file_has_420_000_040_bytes() -> None:
    assert file_size(5_000_000, 20_000_000) == 420_000_040
    assert slot_position(4_976_332) == 40 + 4 * 4_976_332
    assert entry_position(5_000_000, 3) == 40 + 20_000_000 + 60


@given(st.tuples(*[st.integers(0, 1 << 62)] * 4, *[st.integers(1, (1 << 31) - 1)] * 2))
def test_a_header_comes_back_as_it_was_written(fields: tuple[int, int, int, int, int, int]) -> None:
    header = IndexHeader(*fields)

    assert decode_header(header.encode()) == header


def test_a_header_never_written_is_an_empty_files() -> None:
    assert decode_header(bytes(40)) == IndexHeader(index_count=1)


def test_only_the_first_entries_set_where_a_file_begins() -> None:
    empty = IndexHeader(5, 5, 50, 50)

    once = empty.grown(2, 1, offsets=(100, 110), timestamps=(10, 11))
    twice = once.grown(1, 1, offsets=(120, 120), timestamps=(12, 12))

    assert once == IndexHeader(10, 11, 100, 110, 1, 3)
    assert twice == IndexHeader(10, 12, 100, 120, 2, 4)


@given(timestamps, st.lists(timestamps, min_size=1, max_size=5))
def test_seconds_by_columns_are_those_of_single_entries(begin: int, stored: list[int]) -> None:
    expected = [seconds_since(begin, timestamp) for timestamp in stored]

    rows = np.arange(len(stored))
    hashes, previous = rows.astype(np.int32), 2 * rows.astype(np.int32)
    encoded = encode_entries(hashes, 1 << 40 | rows, np.array(stored, np.int64), previous, begin)
    assert view_entries(encoded).tolist() == [
        (row, 1 << 40 | row, seconds, 2 * row) for row, seconds in enumerate(expected)
    ]
    assert all(0 <= seconds <= SECONDS_MAX for seconds in expected)


@pytest.mark.parametrize(
    ("begin", "end", "is_in_it"),
    [
        (0, 99, False),
        (0, 100, True),
        (0, 1000, True),
        (150, 160, True),
        (200, 300, True),
        (201, 300, False),
        (100, 200, True),
        (300, 150, True),  # RocketMQ asks about either bound by itself
    ],
)
def test_a_window_overlaps_a_file_that_holds_either_end_or_lies_in_it(
    *, begin: int, end: int, is_in_it: bool
) -> None:
    assert IndexHeader(100, 200).overlaps(begin, end) is is_in_it


def test_a_file_is_named_after_local_time_to_the_millisecond() -> None:
    assert file_name(NOVEMBER + 7, None, ZoneInfo("UTC")) == "20231114221320007"
    assert file_name(NOVEMBER + 7, None, ZoneInfo("Asia/Shanghai")) == "20231115061320007"
    assert is_file_name(file_name(NOVEMBER, None, None))


@pytest.mark.parametrize("name", ["", "2023", "20231114221320007x", "2023111422132000x"])
def test_other_names_are_not_index_files(name: str) -> None:
    assert not is_file_name(name)


def test_names_ascend_even_when_the_clock_is_set_back_or_stands_still() -> None:
    """Autumn in Berlin: after 02:59:59.999 comes 02:00:00.000 again."""
    berlin = ZoneInfo("Europe/Berlin")
    before = file_name(1_698_541_199_999 - 1, None, berlin)

    after = file_name(1_698_541_200_000, before, berlin)
    again = file_name(1_698_541_200_000, after, berlin)

    assert (before, after, again) == ("20231029025959998", "20231029025959999", "20231029030000000")
