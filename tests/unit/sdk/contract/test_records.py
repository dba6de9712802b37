"""The record codec: what is written is read, and damage is refused or plainly visible."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.records import (
    CHECKSUM_ROOM,
    CHECKSUM_SIZE,
    HOST_BITS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    NO_HOST,
    RECORD_SIZE_MIN,
    DamagedRecordError,
    Host,
    Record,
    RecordLayout,
    body_crc,
    checksum_fault,
    decode_record,
    encode_blank,
    encode_record,
    encode_unstamped,
    layout_of,
)
from support.records import HOSTS, INT32, INT64, RECORDS, example_record, has_checksum


def magic_of(encoded: bytes) -> int:
    magic: int = struct.unpack_from(">I", encoded, 4)[0]
    return magic


@given(RECORDS)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    encoded = encode_record(record)

    decoded = decode_record(encoded)

    assert decoded.size == len(encoded)
    assert decoded.body_crc == body_crc(record.body)
    flags = record.sys_flag & ~HOST_BITS
    flags |= 16 * record.born_host.is_v6 + 32 * record.store_host.is_v6
    assert decoded == replace(record, sys_flag=flags, body_crc=decoded.body_crc)


@given(RECORDS)
def test_writing_what_was_read_gives_the_same_bytes(record: Record) -> None:
    encoded = encode_record(record)

    assert encode_record(decode_record(encoded)) == encoded


@given(RECORDS, st.binary(max_size=20), st.binary(max_size=20))
def test_a_record_is_found_anywhere_in_a_buffer(
    record: Record, before: bytes, after: bytes
) -> None:
    encoded = encode_record(record)

    for kind in (bytes, bytearray, memoryview):
        decoded = decode_record(kind(before + encoded + after), len(before))
        assert decoded == decode_record(encoded)


EXAMPLES = [
    example_record(),
    example_record(topic="t" * 200),
    replace(example_record(), born_host=Host.parse("::1", 1)),
    replace(example_record(), born_host=Host.parse("::1", 1), store_host=Host.parse("::2", 2)),
    Record("", b""),
]


@pytest.mark.parametrize("record", EXAMPLES)
def test_a_record_cut_short_anywhere_is_refused(record: Record) -> None:
    """Exhaustive over the cut."""
    encoded = encode_record(record)

    for cut in range(len(encoded)):
        with pytest.raises(DamagedRecordError):
            decode_record(encoded[:cut])
        with pytest.raises(DamagedRecordError):
            decode_record(encoded + encoded[:cut], len(encoded))


@pytest.mark.parametrize("record", EXAMPLES)
def test_a_flipped_byte_is_refused_or_read_as_what_it_says(record: Record) -> None:
    """Exhaustive over the byte, for each single bit and all eight."""
    encoded = encode_record(record)
    properties_at = len(encoded) - len(record.properties)

    for position in range(len(encoded)):
        for flip in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            damaged = bytearray(encoded)
            damaged[position] ^= flip
            try:
                decoded = decode_record(damaged)
            except DamagedRecordError:
                continue
            if "\ufffd" in decoded.properties:
                assert position >= properties_at
            else:
                assert encode_record(decoded) == damaged


@pytest.mark.parametrize("record", EXAMPLES)
def test_a_flipped_bit_in_body_crc_or_a_length_is_refused(record: Record) -> None:
    encoded = encode_record(record)
    layout = layout_of(decode_record(encoded).sys_flag)
    body = range(layout.body_size, layout.body + len(record.body))

    for position in (*range(12), *body):
        for bit in range(8):
            damaged = bytearray(encoded)
            damaged[position] ^= 1 << bit
            with pytest.raises(DamagedRecordError):
                decode_record(damaged)


@pytest.mark.parametrize("record", EXAMPLES)
def test_no_changed_byte_of_a_record_with_a_checksum_goes_unnoticed(record: Record) -> None:
    encoded = encode_record(record, with_checksum=True)
    assert (has_checksum(encoded), checksum_fault(encoded)) == (True, None)

    for position in range(len(encoded)):
        for change in range(1, 256):
            damaged = bytearray(encoded)
            damaged[position] ^= change
            with pytest.raises(DamagedRecordError):
                decode_record(damaged)


def test_the_last_bytes_of_a_record_without_a_checksum_are_none_that_is_damaged() -> None:
    for text in ("", "k\x01v\x02", "__CRC32#\x01x\x02", "a\x010000000000\x02", "a" * 40):
        decode_record(encode_record(replace(example_record(), properties=text)))


@given(RECORDS)
def test_a_checksum_is_no_property_of_the_message(record: Record) -> None:
    decoded = decode_record(encode_record(record, with_checksum=True))

    assert decoded.property_map() == record.property_map()


def test_room_for_a_checksum_is_as_long_as_one() -> None:
    record = example_record()

    room, written = encode_unstamped(record), encode_record(record, with_checksum=True)

    assert room[:-CHECKSUM_SIZE] == written[:-CHECKSUM_SIZE]
    assert room.endswith(CHECKSUM_ROOM.encode())
    assert len(room) == len(written)


def test_a_checksum_needs_a_separator_before_it() -> None:
    record = replace(example_record(), properties="a\x011")

    decoded = decode_record(encode_record(record, with_checksum=True))

    assert decoded.property_map()["a"] == "1"


@pytest.mark.parametrize(("size", "magic"), [(0, MAGIC_V1), (127, MAGIC_V1), (128, MAGIC_V2)])
def test_a_topic_beyond_127_bytes_takes_the_second_layout(size: int, magic: int) -> None:
    encoded = encode_record(example_record(topic="t" * size))

    assert magic_of(encoded) == magic
    assert decode_record(encoded).topic == "t" * size


def test_the_smallest_record_has_91_bytes() -> None:
    encoded = encode_record(Record("", b""))

    assert len(encoded) == RECORD_SIZE_MIN == 91
    assert decode_record(encoded).body == b""


@pytest.mark.parametrize(
    "record",
    [
        example_record(topic="t" * 32_768),
        replace(example_record(), properties="p" * 32_768),
    ],
)
def test_what_does_not_fit_its_length_field_is_not_written(record: Record) -> None:
    with pytest.raises(ValueError, match="length field"):
        encode_record(record)


def test_a_damaged_body_can_be_read_on_request() -> None:
    encoded = encode_record(replace(example_record(), body_crc=1))

    with pytest.raises(DamagedRecordError, match="CRC"):
        decode_record(encoded)
    assert decode_record(encoded, check_crc=False).body == b"a body"


@given(st.binary())
def test_the_body_crc_is_crc32_without_its_sign(body: bytes) -> None:
    assert body_crc(body) == zlib.crc32(body) % 2**31


def patched(position: int, form: str, value: int, *, record: Record | None = None) -> bytearray:
    damaged = bytearray(encode_record(record or example_record()))
    struct.pack_into(form, damaged, position, value)
    return damaged


LAYOUT = layout_of(0)
TOPIC_AT = LAYOUT.body + len(b"a body")


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (patched(4, ">I", 0xDAA320A8), "unknown magic"),
        (patched(0, ">i", -1), "does not fit"),
        (patched(0, ">i", 90), "does not fit"),
        (patched(RecordLayout.SYS_FLAG, ">i", 48, record=Record("", b"")), "too small for its"),
        (patched(LAYOUT.body_size, ">i", -1), "body of -1"),
        (patched(LAYOUT.body_size, ">i", 10_000), "body of 10000"),
        (patched(TOPIC_AT, ">B", 255), "topic of 255"),
        (patched(TOPIC_AT + 1 + 6, ">H", 1), "do not add up"),
        (patched(TOPIC_AT + 1, ">B", 0xFF), "topic is not UTF-8"),
        (bytearray(10), "10 bytes are too few"),
        (bytearray(encode_blank(200).ljust(200)), "unknown magic"),
    ],
)
def test_the_error_says_what_is_wrong(damaged: bytearray, reason: str) -> None:
    with pytest.raises(DamagedRecordError, match=reason):
        decode_record(damaged)


def test_properties_that_are_not_utf_8_do_not_hide_the_message() -> None:
    encoded = bytearray(encode_record(example_record()))
    encoded[-2] = 0xFF

    decoded = decode_record(encoded)

    assert decoded.body == b"a body"
    assert decoded.property_map() == {"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "I\ufffd"}


def test_a_blank_record_says_how_much_is_left() -> None:
    assert struct.unpack(">iI", encode_blank(4_096)) == (4_096, MAGIC_BLANK)


def test_a_blank_record_needs_its_eight_bytes() -> None:
    with pytest.raises(AssertionError):
        encode_blank(7)


@given(RECORDS)
def test_the_layout_tells_where_each_field_lies(record: Record) -> None:
    encoded = encode_record(record)
    decoded = decode_record(encoded)
    layout = layout_of(decoded.sys_flag)

    for position, form, value in (
        (RecordLayout.QUEUE_ID, ">i", record.queue_id),
        (RecordLayout.QUEUE_OFFSET, ">q", record.queue_offset),
        (RecordLayout.LOG_OFFSET, ">q", record.log_offset),
        (RecordLayout.SYS_FLAG, ">i", decoded.sys_flag),
        (RecordLayout.BORN_TIMESTAMP, ">q", record.born_timestamp),
        (layout.store_timestamp, ">q", record.store_timestamp),
        (layout.reconsume_times, ">i", record.reconsume_times),
        (layout.prepared_offset, ">q", record.prepared_offset),
        (layout.body_size, ">i", len(record.body)),
    ):
        assert struct.unpack_from(form, encoded, position) == (value,)
    born = encoded[RecordLayout.BORN_HOST :][: layout.born_host_size]
    assert born == record.born_host.encode()
    store = encoded[layout.store_host :][: layout.store_host_size]
    assert store == record.store_host.encode()
    assert encoded[layout.body :][: len(record.body)] == record.body


@given(HOSTS)
def test_a_hosts_text_leads_back_to_it(host: Host) -> None:
    assert Host.from_text(host.text) == host
    assert Host.parse(host.ip, host.port) == host


def test_a_v6_host_may_do_without_brackets() -> None:
    assert Host.from_text("::1:10911") == Host.from_text("[::1]:10911") == Host.parse("::1", 10911)
    assert Host.from_text("[::1]:10911").text == "[::1]:10911"
    assert Host.from_text("127.0.0.1:80").text == "127.0.0.1:80"


@pytest.mark.parametrize(
    "text",
    [
        *("", "127.0.0.1", "127.0.0.1:", ":80", "localhost:80", "1.2.3.4:x", "1.2.3.4:65536"),
        *("[::1:80", "[fe80::1%eth0]:80"),
    ],
)
def test_anything_else_is_no_host(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Host.from_text(text)


@given(INT32, INT64)
def test_a_record_without_hosts_has_v4_ones(queue_id: int, offset: int) -> None:
    decoded = decode_record(encode_record(Record("t", b"", queue_id, queue_offset=offset)))

    assert decoded.born_host == decoded.store_host == NO_HOST
    assert decoded.sys_flag == 0
