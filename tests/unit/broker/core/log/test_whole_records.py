"""Whole records at the beginning of some bytes: the same from wherever, and never a divided one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import RecordNotFoundError, UnavailableError
from eruca.contract.records import BLANK_SIZE_MIN, encode_blank, encode_record
from eruca_broker.core.log.whole_records import WholeRecords, damaged_among, whole_records
from support.records import example_record

BASE = 5_000  # log offset of the segment's first byte


def segment_of(sizes: list[int], blank: int) -> tuple[bytes, list[int]]:
    """Return a segment that ends in a blank record, and where its records begin."""
    data, starts = b"", []
    for size in sizes:
        starts.append(len(data))
        record = replace(example_record(body=b"x" * size), log_offset=BASE + len(data))
        data += encode_record(record, with_checksum=True)
    return data + encode_blank(blank).ljust(blank, b"\0"), starts


def found_in(data: bytes, start: int, end: int, *, bytes_max: int, stop: int) -> WholeRecords:
    return whole_records(
        memoryview(data)[start:end],
        BASE + start,
        bytes_max=bytes_max,
        base=BASE,
        end=BASE + len(data),
        stop=stop,
    )


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=6),
    blank=st.integers(BLANK_SIZE_MIN, 200),
    bytes_max=st.integers(1, 2_000),
    data=st.data(),
)
def test_the_records_of_a_part_are_the_first_ones_of_the_whole(
    sizes: list[int], blank: int, bytes_max: int, data: st.DataObject
) -> None:
    segment, starts = segment_of(sizes, blank)
    records_end = len(segment) - blank
    begin = data.draw(st.sampled_from([*starts, records_end]))
    stops = [BASE + place for place in (*starts, records_end) if place > begin]
    stop = data.draw(st.sampled_from([*stops, BASE + len(segment), BASE + 2 * len(segment)]))
    end = data.draw(st.integers(begin, len(segment)))
    whole = found_in(segment, begin, len(segment), bytes_max=bytes_max, stop=stop)
    part = found_in(segment, begin, end, bytes_max=bytes_max, stop=stop)

    assert not whole.needed
    bounds = [place for place in (*starts, records_end) if place >= begin]
    count = len(whole.starts)
    assert whole.starts == [place - begin for place in bounds[:count]]
    assert whole.size == bounds[count] - begin
    assert whole.size <= bytes_max or count == 1
    is_all = BASE + bounds[count] == BASE + records_end < stop
    assert whole.next_offset == BASE + (len(segment) if is_all else bounds[count])
    if not part.needed:
        assert whole.starts[: len(part.starts)] == part.starts
        assert part.size <= end - begin
        assert part.next_offset <= whole.next_offset
    else:
        assert not part.starts
        assert part.needed > end - begin
        again = found_in(segment, begin, begin + part.needed, bytes_max=bytes_max, stop=stop)
        assert again.starts or again.needed > part.needed or again.next_offset > BASE + begin


def test_a_place_where_no_record_starts_is_not_found() -> None:
    segment, _ = segment_of([20, 20], 50)

    with pytest.raises(RecordNotFoundError, match=f"no record starts at log offset {BASE + 3}"):
        found_in(segment, 3, len(segment), bytes_max=999, stop=BASE + len(segment))


@pytest.mark.parametrize("record", [0, 1])
def test_damage_behind_which_no_record_is_known_is_unavailable(record: int) -> None:
    """At the segment's beginning a record must start; elsewhere one was just read before it."""
    segment, starts = segment_of([20, 20], 50)
    broken = bytearray(segment)
    broken[starts[record]] ^= 0xFF  # its size

    with pytest.raises(UnavailableError, match=f"at log offset {BASE + starts[record]} is damaged"):
        found_in(bytes(broken), 0, len(segment), bytes_max=999, stop=BASE + len(segment))


def test_a_record_damaged_in_itself_is_named() -> None:
    segment, starts = segment_of([20, 20, 20], 50)
    rotten = bytearray(segment)
    rotten[starts[1] + 95] ^= 1
    found = found_in(bytes(rotten), 0, len(segment), bytes_max=999, stop=BASE + len(segment))

    assert damaged_among(memoryview(rotten), found, BASE) == [BASE + starts[1]]
    nothing = found_in(segment, starts[-1], starts[-1] + 5, bytes_max=1, stop=BASE + len(segment))
    assert damaged_among(memoryview(rotten), nothing, BASE) == []
