"""Scrubbing a stretch of the log: sound, truncated and damaged records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.records import LAYOUT_V4, encode_blank, encode_record
from eruca_broker.core.log.scrub import Examined, examine
from support.records import example_record

BASE = 4_096  # log offset of the segment
ROOM = 100  # left behind the last record, for a blank one


def segment(*body_sizes: int) -> tuple[bytes, list[int]]:
    """Return a whole segment and the log offsets of its records, the blank one at last."""
    data, offsets = b"", []
    for size in body_sizes:
        offsets.append(BASE + len(data))
        data += encode_record(replace(example_record(body=b"x" * size), log_offset=offsets[-1]))
    offsets.append(BASE + len(data))
    return data + encode_blank(ROOM).ljust(ROOM, b"\0"), offsets


SOUND, OFFSETS = segment(10, 700, 30, 2_000)
END = BASE + len(SOUND)


def damaged(at: int) -> bytes:
    """Return the segment with one bit of the byte at a log offset the other way."""
    data = bytearray(SOUND)
    data[at - BASE] ^= 4
    return bytes(data)


def with_size(at: int, size: int) -> bytes:
    """Return the segment with another size of the record at a log offset."""
    data = bytearray(SOUND)
    data[at - BASE : at - BASE + 4] = size.to_bytes(4)
    return bytes(data)


def test_a_sound_segment_is_passed_to_its_end() -> None:
    assert examine(SOUND, BASE, END, END) == Examined(END, 0, None)


@given(size=st.integers(8, len(SOUND)))
def test_a_stretch_may_end_anywhere(size: int) -> None:
    offset, rounds = BASE, 0
    while offset < END:
        rounds += 1
        stretch = SOUND[offset - BASE :][:size]
        examined = examine(stretch, offset, END, END)
        assert examined.damage is None
        for _ in range(2):  # it says how much it needs, of a long record first of its head
            if examined.next_offset == offset:
                assert examined.size_needed > len(stretch)
                stretch = SOUND[offset - BASE :][: examined.size_needed]
                examined = examine(stretch, offset, END, END)
        assert examined.next_offset > offset
        assert examined.next_offset in (*OFFSETS, END)
        offset = examined.next_offset
    assert rounds <= len(OFFSETS)


@pytest.mark.parametrize("number", range(len(OFFSETS) - 1))
def test_a_damaged_record_is_told_and_left_behind(number: int) -> None:
    offset = OFFSETS[number]
    data = damaged(offset + LAYOUT_V4.body)

    examined = examine(data, BASE, END, END)

    assert examined.damage is not None
    assert (examined.damaged_at, examined.next_offset) == (offset, OFFSETS[number + 1])
    rest = examine(data[examined.next_offset - BASE :], examined.next_offset, END, END)
    assert rest == Examined(END, 0, None)


@pytest.mark.parametrize("at", [0, 4])
def test_where_a_size_or_a_magic_is_damaged_the_rest_of_the_segment_cannot_be_found(
    at: int,
) -> None:
    examined = examine(damaged(OFFSETS[1] + at), BASE, END, END)

    assert examined.damage is not None
    assert (examined.damaged_at, examined.next_offset) == (OFFSETS[1], END)


def test_the_end_of_what_is_flushed_is_no_damage() -> None:
    flushed = OFFSETS[2]

    assert examine(SOUND[: flushed - BASE], BASE, END, flushed) == Examined(flushed, 0, None)


@pytest.mark.parametrize("too_long", [1, 7, 8, 300])
def test_a_record_that_reaches_behind_what_is_flushed_is_damaged(too_long: int) -> None:
    flushed = OFFSETS[3]
    data = with_size(OFFSETS[2], flushed - OFFSETS[2] + too_long)[: flushed - BASE]

    examined = examine(data, BASE, END, flushed)

    assert examined.damage is not None
    assert (examined.damaged_at, examined.next_offset) == (OFFSETS[2], END)


@pytest.mark.parametrize("left", range(1, 8))
def test_too_few_bytes_for_anything_are_left_only_behind_a_damaged_size(left: int) -> None:
    data = with_size(OFFSETS[2], END - OFFSETS[2] - left)

    first = examine(data, BASE, END, END)
    second = examine(data[-left:], END - left, END, END)

    assert (first.damaged_at, first.next_offset) == (OFFSETS[2], END - left)
    assert second.damage is not None
    assert (second.damaged_at, second.next_offset) == (END - left, END)


def test_a_size_that_the_body_belies_is_not_asked_for() -> None:
    room = 1_000_000_000
    data = with_size(OFFSETS[1], 500_000_000)[: OFFSETS[1] - BASE + 200]

    examined = examine(data, BASE, BASE + room, BASE + room)

    assert examined.damage is not None
    assert (examined.damaged_at, examined.next_offset) == (OFFSETS[1], BASE + room)
