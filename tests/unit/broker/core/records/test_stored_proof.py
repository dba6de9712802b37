"""The proof of stored records: no changed byte goes unnoticed, and C and Python say the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eruca.contract.records import (
    HOST_BITS,
    DamagedRecordError,
    Host,
    Record,
    SysFlag,
    decode_record,
    encode_record,
)
from eruca_broker.core.consume_queue_entry import encode_entry
from eruca_broker.core.native.library import address_of
from eruca_broker.core.records.stored_proof import (
    fault_of,
    proved_rows,
    sizes_of_run,
    sound_count,
)
from support.records import RECORDS, example_record

V6 = Host.parse("2001:db8::7", 4_000)
EXAMPLES = [
    example_record(),
    replace(example_record(), properties=""),
    replace(example_record(), born_host=V6, store_host=V6),
    example_record(topic="t" * 130),
]
LOG_OFFSET, QUEUE_OFFSET = 5_000, 70


def queued(count: int, *, with_checksum: bool = True) -> list[bytes]:
    records, log_offset = [], LOG_OFFSET
    for number in range(count):
        record = Record(
            "orders",
            b"body of %d" % number,
            queue_id=2,
            queue_offset=QUEUE_OFFSET + number,
            log_offset=log_offset,
            properties="TAGS\x01a\x02",
        )
        records.append(encode_record(record, with_checksum=with_checksum))
        log_offset += len(records[-1])
    return records


def sound(records: list[bytes], *, log_offset: int = LOG_OFFSET, **changes: object) -> int:
    place: dict[str, object] = {"topic": b"orders", "queue_id": 2, "queue_offset": QUEUE_OFFSET}
    sizes = b"".join(len(record).to_bytes(4) for record in records)
    stretches = [(log_offset, memoryview(b"".join(records)))]
    return sound_count(stretches, sizes, **(place | changes))  # type: ignore[arg-type]  # of many types


def flipped(record: bytes, position: int, change: int) -> bytes:
    return record[:position] + bytes([record[position] ^ change]) + record[position + 1 :]


@pytest.mark.parametrize("record", EXAMPLES)
def test_no_changed_byte_of_a_record_with_a_checksum_goes_unnoticed(record: Record) -> None:
    encoded = encode_record(record, with_checksum=True)
    assert fault_of(encoded) is None

    for position in range(len(encoded)):
        for change in range(1, 256):
            assert fault_of(flipped(encoded, position, change)) is not None, (position, change)


def test_of_a_record_without_one_sizes_magic_body_and_its_crc_are_proved() -> None:
    record = example_record()
    encoded = encode_record(record)
    assert fault_of(encoded) is None
    body_at = encoded.index(record.body)

    for position in (*range(12), *range(body_at - 4, body_at + len(record.body) + 1)):
        assert fault_of(flipped(encoded, position, 1)) is not None, position


@settings(max_examples=500, deadline=None)
@given(data=st.data(), record=RECORDS, with_checksum=st.booleans())
def test_what_is_compiled_says_what_python_says(
    data: st.DataObject, record: Record, with_checksum: bool
) -> None:
    raw = bytearray(encode_record(record, with_checksum=with_checksum))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    sizes = np.array([len(raw)], np.int64)

    [is_sound] = proved_rows(bytes(raw), np.zeros(1, np.int64), sizes)

    try:
        decoded = decode_record(raw)
    except DamagedRecordError as error:
        assume("UTF-8" not in str(error))  # of a topic: nothing that a size or a CRC shows
        assert not is_sound
    else:
        assert is_sound == (decoded.size == len(raw))


@pytest.mark.parametrize("with_checksum", [True, False])
def test_records_of_a_queue_are_proved_up_to_the_first_that_is_damaged(
    with_checksum: bool,
) -> None:
    records = queued(5, with_checksum=with_checksum)
    assert sound(records) == 5

    for row, record in enumerate(records):
        at = record.index(b"body of")
        damaged = [*records[:row], flipped(record, at, 0x40), *records[row + 1 :]]
        assert sound(damaged) == row


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": b"orderz"},
        {"topic": b"order"},
        {"queue_id": 3},
        {"log_offset": LOG_OFFSET + 1},
        {"queue_offset": QUEUE_OFFSET - 1},
    ],
)
def test_a_sound_record_elsewhere_than_it_says_is_not_the_queues(
    changes: dict[str, object],
) -> None:
    assert sound(queued(3), **changes) == 0  # type: ignore[arg-type]  # of many types


def test_stretches_of_a_queue_are_proved_one_after_the_other() -> None:
    records = queued(5)
    sizes = b"".join(len(record).to_bytes(4) for record in records)
    first = b"".join(records[:2])
    damaged = flipped(b"".join(records[2:]), len(records[2]) + 100, 1)

    for rest, expected in ((b"".join(records[2:]), 5), (damaged, 3)):
        stretches = [
            (LOG_OFFSET, memoryview(first)),
            (LOG_OFFSET + len(first), memoryview(rest)),
        ]
        count = sound_count(
            stretches, sizes, topic=b"orders", queue_id=2, queue_offset=QUEUE_OFFSET
        )
        assert count == expected


def test_where_a_filter_left_messages_out_offsets_need_not_follow_each_other() -> None:
    assert sound(queued(3), queue_offset=None) == 3


def test_a_size_that_a_consume_queue_tells_wrong_leads_nowhere() -> None:
    [record] = queued(1)

    for size in (1, 90, len(record) - 1):
        assert sound([record[:size]]) == 0


def test_a_checksum_covers_what_the_layout_hangs_on() -> None:
    encoded = encode_record(example_record(), with_checksum=True)

    for bit in (SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6, HOST_BITS):
        assert fault_of(flipped(encoded, 39, int(bit))) is not None


def sizes_of(records: list[bytes], entries: bytes, **changes: object) -> bytes | None:
    buffer = bytearray(b"".join(records))
    place: dict[str, object] = {"topic": "orders", "queue_id": 2, "queue_offset": QUEUE_OFFSET}
    return sizes_of_run(entries, address_of(buffer), len(buffer), **(place | changes))  # type: ignore[arg-type]


def entries_of(records: list[bytes]) -> bytes:
    starts = accumulate(map(len, records[:-1]), initial=LOG_OFFSET)
    return b"".join(
        encode_entry(start, len(record), number)
        for number, (start, record) in enumerate(zip(starts, records, strict=True))
    )


@settings(max_examples=100, deadline=None)
@given(data=st.data(), count=st.integers(1, 6))
def test_a_run_is_taken_if_each_of_its_records_is_proved(data: st.DataObject, count: int) -> None:
    records = queued(count, with_checksum=data.draw(st.booleans()))
    entries = entries_of(records)
    if data.draw(st.booleans()):
        row = data.draw(st.integers(0, count - 1))
        at = data.draw(st.integers(0, len(records[row]) - 1))
        records[row] = flipped(records[row], at, data.draw(st.integers(1, 255)))

    sizes = b"".join(len(record).to_bytes(4) for record in records)
    expected = sizes if sound(records) == count else None
    assert sizes_of(records, entries) == expected


@pytest.mark.parametrize(
    "changes", [{"topic": "orderz"}, {"queue_id": 3}, {"queue_offset": QUEUE_OFFSET - 1}]
)
def test_a_run_of_another_queue_is_not_taken(changes: dict[str, object]) -> None:
    records = queued(3)

    assert sizes_of(records, entries_of(records), **changes) is None


def test_records_that_do_not_lie_back_to_back_are_no_run() -> None:
    records = queued(3)
    entries = entries_of(records)

    for wrong in (
        entries[:20] + encode_entry(LOG_OFFSET, len(records[1]), 0) + entries[40:],
        encode_entry(LOG_OFFSET + 1, len(records[0]), 0) + entries[20:],
        encode_entry(LOG_OFFSET, len(records[0]) - 1, 0) + entries[20:],
        entries[:40] + encode_entry(LOG_OFFSET, 2**31 - 1, 0),
        entries[:40],
    ):
        assert sizes_of(records, wrong) is None
