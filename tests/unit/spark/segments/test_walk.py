"""The walk over a segment: every record it can prove, and nothing of the rest in silence."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eruca.contract.records import Record, encode_record
from pyspark_eruca_segments import walk as walk_module
from pyspark_eruca_segments.walk import Damaged, Proven
from support.laid_segments import LOGS, laid, raws_of, walked

BASES = st.sampled_from([0, 2**30, 2**45])
WINDOWS = st.sampled_from([91, 300, 1_024, 2**20])


def plain(body: bytes = b"body", *, queue_offset: int = 0) -> tuple[Record, bool]:
    return Record("orders", body, queue_offset=queue_offset), True


def damaged_of(parts: list[Proven | Damaged]) -> list[Damaged]:
    return [part for part in parts if isinstance(part, Damaged)]


@given(LOGS, BASES, WINDOWS)
def test_every_record_is_found_whatever_the_windows(
    records: list[tuple[Record, bool]], base: int, window: int
) -> None:
    segment, encoded = laid(records, base)

    parts = walked(segment, base, window=window)

    assert raws_of(parts) == encoded
    assert not damaged_of(parts)
    topics = [
        part.topics[number]
        for part in parts
        if isinstance(part, Proven)
        for number in part.numbers.tolist()
    ]
    assert topics == [record.topic for record, _ in records]


@given(LOGS, WINDOWS)
def test_a_stretch_may_end_with_a_record(records: list[tuple[Record, bool]], window: int) -> None:
    segment, encoded = laid(records, 0)
    used = sum(map(len, encoded))

    parts = walked(segment, 0, size=used, window=window)

    assert raws_of(parts) == encoded
    assert not damaged_of(parts)


@given(LOGS, WINDOWS, st.data())
def test_a_changed_byte_is_told_and_costs_its_own_record_only(
    records: list[tuple[Record, bool]], window: int, data: st.DataObject
) -> None:
    segment, encoded = laid([(record, True) for record, _ in records], 0)
    used = sum(map(len, encoded))
    at = data.draw(st.integers(0, used - 1))
    changed = bytearray(segment)
    changed[at] ^= data.draw(st.integers(1, 255))

    parts = walked(bytes(changed), 0, window=window)

    begins = [sum(map(len, encoded[:row])) for row in range(len(encoded))]
    [hit] = [row for row, begin in enumerate(begins) if begin <= at < begin + len(encoded[row])]
    assert raws_of(parts) == encoded[:hit] + encoded[hit + 1 :]
    [damaged] = damaged_of(parts)
    assert damaged[:2] == (begins[hit], len(encoded[hit]))


@given(LOGS, WINDOWS, st.data())
def test_changed_bytes_are_read_to_their_end_and_what_is_proven_was_written(
    records: list[tuple[Record, bool]], window: int, data: st.DataObject
) -> None:
    segment, encoded = laid([(record, True) for record, _ in records], 0)
    changed = bytearray(segment)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))

    parts = walked(bytes(changed), 0, size=len(segment), window=window)

    assert set(raws_of(parts)) <= set(encoded)
    covered = 0
    for part in parts:
        if isinstance(part, Damaged):
            assert part.log_offset == covered
            covered += part.size
        else:
            covered += int(part.columns.sizes.sum())
    blank = len(segment) - sum(map(len, encoded))
    assert covered in (len(segment), len(segment) - blank)


@given(LOGS, WINDOWS, st.data())
def test_a_truncated_file_is_damaged_from_its_end_on(
    records: list[tuple[Record, bool]], window: int, data: st.DataObject
) -> None:
    segment, encoded = laid(records, 0)
    size = data.draw(st.integers(0, len(segment) - 1))

    parts = walked(segment[:size], 0, size=len(segment), window=window)

    whole = [raw for row, raw in enumerate(encoded) if sum(map(len, encoded[: row + 1])) <= size]
    assert raws_of(parts) == whole
    ends = sum(map(len, whole))
    is_closed = size >= sum(map(len, encoded)) + 8  # the blank record's head is there
    if not is_closed:
        [damaged] = damaged_of(parts)
        assert damaged == (ends, len(segment) - ends, f"the file ends at its byte {size}")


def test_a_hole_of_zeros_is_damage() -> None:
    segment, encoded = laid([plain(), plain(queue_offset=1)], 0)
    hole = bytes(len(encoded[0])) + segment[len(encoded[0]) :]

    parts = walked(hole, 0)

    assert raws_of(parts) == encoded[1:]
    assert damaged_of(parts) == [(0, len(encoded[0]), "zeros follow, where a record was expected")]


def test_a_record_larger_than_a_window_is_read() -> None:
    segment, encoded = laid([plain(), plain(bytes(5_000)), plain()], 0)

    assert raws_of(walked(segment, 0, window=200)) == encoded


def test_a_size_that_no_record_has_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_module, "RECORD_SIZE_MAX", 4_000)
    segment, encoded = laid([plain(), plain(bytes(5_000)), plain()], 0)

    parts = walked(segment, 0, window=200)

    assert raws_of(parts) == [encoded[0], encoded[2]]
    assert [part.size for part in damaged_of(parts)] == [len(encoded[1])]


@given(LOGS)
def test_a_record_of_another_place_is_not_one_of_the_log(
    records: list[tuple[Record, bool]],
) -> None:
    segment, encoded = laid(records, 0)
    assume(len(encoded) > 0)

    parts = walked(segment, 4_096)

    assert raws_of(parts) == []
    assert damaged_of(parts)[0].log_offset == 4_096


def test_a_body_that_holds_a_record_is_no_place_to_go_on() -> None:
    inner = encode_record(Record("orders", b"inner"), with_checksum=True)
    segment, encoded = laid([plain(inner * 3), plain(queue_offset=1)], 0)
    changed = bytearray(segment)
    changed[30] ^= 1

    parts = walked(bytes(changed), 0)

    assert raws_of(parts) == encoded[1:]
