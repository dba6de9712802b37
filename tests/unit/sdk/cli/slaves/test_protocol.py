"""Frames of a log for RocketMQ's slaves, and the reports of these."""

from __future__ import annotations

import struct
from random import Random

import pytest

from eruca.cli.slaves.protocol import (
    FRAME_SIZE,
    FRAME_SIZE_MAX,
    SlaveError,
    SlaveProgress,
    frames,
    heartbeat,
    report_of,
)
from eruca.contract.records import MAGIC_BLANK

BEGIN = 5_000


def record(size: int) -> bytes:
    return size.to_bytes(4).ljust(size, b"r")


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_the_log_and_end_after_records(seed: int) -> None:
    random = Random(seed)
    sizes = [
        random.choice([91, 4_000, FRAME_SIZE, 900_000]) for _ in range(random.randrange(1, 40))
    ]
    records = b"".join(map(record, sizes))
    ends = {BEGIN + sum(sizes[:count]) for count in range(len(sizes) + 1)}

    found = list(frames(records, BEGIN, BEGIN + len(records)))

    assert b"".join(frame.data for frame in found) == records
    assert [frame.log_offset for frame in found] == [BEGIN, *(frame.end for frame in found[:-1])]
    assert all(frame.end in ends for frame in found)
    assert all(len(frame.data) <= max(FRAME_SIZE, *sizes) for frame in found)


def test_a_frame_says_where_it_begins_and_how_large_it_is() -> None:
    [frame] = frames(record(100), BEGIN, BEGIN + 100)

    assert frame.header == struct.pack(">qi", BEGIN, 100)
    assert heartbeat(BEGIN).header == struct.pack(">qi", BEGIN, 0)


@pytest.mark.parametrize("records", [b"", record(200)], ids=["alone", "behind a record"])
def test_the_rest_of_a_segment_is_a_blank_record(records: bytes) -> None:
    end = BEGIN + len(records) + 70

    *_, blank = frames(records, BEGIN, end)

    assert blank.log_offset == BEGIN + len(records)
    assert bytes(blank.data) == struct.pack(">iI", 70, MAGIC_BLANK) + bytes(62)


def test_only_what_a_slave_has_no_room_for_is_divided() -> None:
    whole = list(frames(record(FRAME_SIZE_MAX), BEGIN, BEGIN + FRAME_SIZE_MAX))
    divided = list(frames(record(FRAME_SIZE_MAX + 1), BEGIN, BEGIN + FRAME_SIZE_MAX + 1))

    assert [len(frame.data) for frame in whole] == [FRAME_SIZE_MAX]
    assert [len(frame.data) for frame in divided] == [FRAME_SIZE_MAX, 1]


@pytest.mark.parametrize("records", [record(100)[:99], bytes(100), record(90)])
def test_what_is_no_record_is_refused(records: bytes) -> None:
    with pytest.raises(SlaveError, match=f"expected a record at log offset {BEGIN}, found none"):
        list(frames(records, BEGIN, BEGIN + len(records)))


def test_a_gap_without_room_for_a_blank_record_is_refused() -> None:
    with pytest.raises(SlaveError, match="expected the log's next part"):
        list(frames(record(100), BEGIN, BEGIN + 107))


def test_a_report_is_a_log_offset() -> None:
    assert report_of(struct.pack(">q", 2**40)) == 2**40
    with pytest.raises(SlaveError, match="it is no slave"):
        report_of(b"\xffHELLO!!")


def test_a_slave_reports_what_it_was_sent_and_never_less_than_before() -> None:
    progress = SlaveProgress(0)
    progress.begin(BEGIN)  # retention has deleted the beginning
    progress.reported(0)  # it is still empty
    [frame] = frames(record(100), BEGIN, BEGIN + 100)
    progress.sending(frame)
    progress.reported(BEGIN + 100)

    for wrong in (BEGIN, BEGIN + 101):
        with pytest.raises(SlaveError, match=f"it reports log offset {wrong}"):
            progress.reported(wrong)
    with pytest.raises(AssertionError):
        progress.sending(frame)
