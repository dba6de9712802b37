"""Stretches of the log: every record in order, blanks left out, damage noticed."""

from __future__ import annotations

from itertools import accumulate

import pytest

from eruca.contract.records import (
    LAYOUT_V4,
    DamagedRecordError,
    Host,
    Record,
    encode_blank,
    encode_record,
)
from eruca.core.messages.log_block import LogBlock, sound_records, split_log_block

RECORDS = [Record("orders", b"body-%d" % n, log_offset=1_000 + 97 * n) for n in range(3)]
ENCODED = [encode_record(record) for record in RECORDS]


def test_records_come_in_order_with_where_they_lie() -> None:
    records = list(split_log_block("broker-a", b"".join(ENCODED)))

    assert [record.decode().body for record in records] == [record.body for record in RECORDS]
    assert [record.raw for record in records] == ENCODED
    assert [record.log_offset for record in records] == [record.log_offset for record in RECORDS]
    assert records[0].next_offset == 1_000 + len(ENCODED[0])
    assert records[0].broker_name == "broker-a"
    assert repr(records[0]) == f"LogRecord(broker-a at 1000, {len(ENCODED[0])} bytes)"


def test_nothing_is_in_an_empty_block() -> None:
    assert list(split_log_block("broker-a", b"")) == []


def test_the_rest_of_a_segment_is_no_record() -> None:
    assert len(list(split_log_block("broker-a", ENCODED[0] + encode_blank(500)))) == 1


@pytest.mark.parametrize("cut", range(1, len(ENCODED[0])))
def test_a_record_that_is_cut_off_is_noticed(cut: int) -> None:
    """Exhaustive over the cut."""
    with pytest.raises(DamagedRecordError):
        list(split_log_block("broker-a", ENCODED[0] + ENCODED[1][:cut]))


def test_a_record_of_no_size_is_noticed() -> None:
    with pytest.raises(DamagedRecordError):
        list(split_log_block("broker-a", bytes(100)))


@pytest.mark.parametrize("host", ["127.0.0.1:1", "[::1]:1"])
@pytest.mark.parametrize("topic", ["t", "orders", "%RETRY%" + "g" * 200])
def test_the_topic_is_read_without_the_rest(topic: str, host: str) -> None:
    place = Host.from_text(host)
    raw = encode_record(Record(topic, b"body", born_host=place, store_host=place))

    [record] = split_log_block("broker-a", raw)

    assert record.topic == topic


def test_a_record_whose_topic_lies_outside_is_noticed() -> None:
    raw = bytearray(ENCODED[0])
    raw[LAYOUT_V4.body_size : LAYOUT_V4.body] = (1_000_000).to_bytes(4, "big")

    [record] = split_log_block("broker-a", bytes(raw))

    with pytest.raises(DamagedRecordError):
        _ = record.topic


def test_a_block_tells_which_stretch_it_is() -> None:
    data = b"".join(ENCODED)
    block = LogBlock("broker-a", 1_000, 1_000 + len(data), 9_000, data)

    assert [record.raw for record in block.records()] == ENCODED
    assert repr(block) == (
        f"LogBlock(broker-a from 1000, {len(data)} bytes, next {1_000 + len(data)} of 9000)"
    )


def test_records_that_the_broker_found_damaged_are_left_out() -> None:
    starts = list(accumulate(map(len, ENCODED), initial=0))
    data = b"".join(ENCODED)

    assert sound_records(data, 1_000, "") == (data, {})
    for row, start in enumerate(starts[:-1]):
        sound, damaged = sound_records(data, 1_000, str(1_000 + start))
        assert sound == b"".join(ENCODED[:row] + ENCODED[row + 1 :])
        assert list(damaged) == [1_000 + start]
    every = ",".join(str(1_000 + start) for start in starts[:-1])
    assert sound_records(data, 1_000, every)[0] == b""


@pytest.mark.parametrize("offsets", ["x", "999", "999999", "1000,1000"])
def test_offsets_at_which_no_record_of_the_answer_lies_are_refused(offsets: str) -> None:
    with pytest.raises(ValueError, match=r"log offset|invalid literal"):
        sound_records(b"".join(ENCODED), 1_000, offsets)
