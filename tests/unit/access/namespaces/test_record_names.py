"""Names in batches of records: other names, the same messages, and checksums that are right."""

from __future__ import annotations

import struct
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.properties import decode_properties, encode_properties
from eruca.contract.records import (
    Host,
    Record,
    decode_record,
    encode_record,
    encode_unstamped,
)
from eruca.contract.wire import (
    BATCH_MAGIC,
    DELAYED_BATCH_MAGIC,
    LANE_BATCH_MAGIC,
    LanePosition,
    PullStatus,
    batch_extent,
    batch_sizes,
    decode_multi_pull,
    decode_pull,
    encode_batch,
    encode_multi_pull_heads,
    encode_pull_head,
    with_position,
)
from eruca.core.access.namespaces import Namespace
from eruca_access.namespaces.json_names import Changes
from eruca_access.namespaces.record_names import changed_batch, changed_pull

SPACE: Final = Namespace("team-a-")
WHOLE: Final = Changes.to_whole(SPACE)
SHORT: Final = Changes.to_short(SPACE)
RECORDS: Final = st.builds(
    Record,
    topic=st.text("ab%_", min_size=1, max_size=124),
    body=st.binary(max_size=40),
    queue_id=st.integers(0, 7),
    born_host=st.sampled_from([Host.parse("10.0.0.1", 7), Host.parse("::1", 7)]),
    properties=st.dictionaries(
        st.sampled_from(["RETRY_TOPIC", "PGROUP", "TAGS", "own"]), st.text("ab", min_size=1)
    ).map(encode_properties),
)


def section(records: list[bytes], status: PullStatus = PullStatus.FOUND) -> bytes:
    sizes = struct.pack(f">{len(records)}I", *map(len, records))
    size = sum(map(len, records))
    head = encode_pull_head(
        status, next_offset=9, min_offset=1, max_offset=10, sizes=sizes, records_size=size
    )
    return head + b"".join(records)


def decoded(records: memoryview | bytes, sizes: list[int]) -> list[Record]:
    found, start = [], 0
    for size in sizes:
        found.append(decode_record(records, start))
        assert found[-1].size == size
        start += size
    assert start == len(records)
    return found


@given(st.lists(RECORDS, min_size=1, max_size=4))
def test_a_batch_differs_in_its_names_alone(records: list[Record]) -> None:
    body = encode_batch([encode_unstamped(record) for record in records])
    made = changed_batch(body, WHOLE)
    count, start = batch_extent(made)
    sizes, at = batch_sizes(made, count), start
    for record, size in zip(records, sizes, strict=True):
        found = decode_record(made, at, check_crc=False)
        assert found.size == size
        assert found.topic == SPACE.whole_topic(record.topic)
        assert (found.body, found.born_host) == (record.body, record.born_host)
        properties = decode_properties(found.properties)
        for name, value in decode_properties(record.properties).items():
            is_name = name in ("RETRY_TOPIC", "PGROUP")
            assert properties[name] == (f"team-a-{value}" if is_name else value)
        at += size


@pytest.mark.parametrize("magic", [BATCH_MAGIC, LANE_BATCH_MAGIC, DELAYED_BATCH_MAGIC])
def test_a_batch_keeps_its_form(magic: bytes) -> None:
    short, whole = (
        encode_batch([encode_unstamped(Record(topic, b"x"))]) for topic in ("own", "team-a-own")
    )
    place = LanePosition(b"producer", 1, 7)
    made = changed_batch(of_form(magic, short, place), WHOLE)
    assert made == of_form(magic, whole, place)
    assert made.startswith(magic)


def of_form(magic: bytes, plain: bytes, place: LanePosition) -> bytes:
    """Return a batch under another magic, with a position if its form has one."""
    if magic == LANE_BATCH_MAGIC:
        return b"".join(with_position(plain, place))
    return magic + plain[len(magic) :]


@given(st.lists(RECORDS, max_size=4), st.booleans())
def test_the_records_of_a_pull_have_right_checksums(
    records: list[Record], with_checksum: bool
) -> None:
    stored = []
    for record in records:
        record.topic = SPACE.whole_topic(record.topic)
        names = decode_properties(record.properties)
        names |= {n: f"team-a-{v}" for n, v in names.items() if n in ("RETRY_TOPIC", "PGROUP")}
        record.properties = encode_properties(names)
        stored.append(encode_record(record, with_checksum=with_checksum))
    found = decode_pull(changed_pull(section(stored), SHORT))
    assert (found.status, found.next_offset, found.min_offset) == (PullStatus.FOUND, 9, 1)
    for record, other in zip(records, decoded(found.records, list(found.sizes)), strict=True):
        assert other.topic == SPACE.short_topic(record.topic)
        assert other.body == record.body
        for name, value in decode_properties(record.properties).items():
            is_name = name in ("RETRY_TOPIC", "PGROUP")
            short = value.removeprefix("team-a-") if is_name else value
            assert decode_properties(other.properties)[name] == short


def test_a_pull_of_many_queues_keeps_its_sections() -> None:
    one = encode_record(Record("team-a-orders", b"x"), with_checksum=True)
    blocks = [
        (2, section([one, one])),
        (5, section([], PullStatus.OFFSET_TOO_SMALL)),
        (7, damaged("team-a-orders is damaged")),
    ]
    head, heads = encode_multi_pull_heads((index, len(block)) for index, block in blocks)
    body = head + b"".join(h + block for h, (_, block) in zip(heads, blocks, strict=True))
    sections = decode_multi_pull(changed_pull(body, SHORT))
    assert [index for index, _ in sections] == [2, 5, 7]
    full, empty, broken = (pulled for _, pulled in sections)
    assert [r.topic for r in decoded(full.records, list(full.sizes))] == ["orders", "orders"]
    assert (empty.status, len(empty.sizes)) == (PullStatus.OFFSET_TOO_SMALL, 0)
    assert broken.damage == "team-a-orders is damaged"


def damaged(fault: str) -> bytes:
    head = encode_pull_head(
        PullStatus.DAMAGED, next_offset=1, min_offset=0, max_offset=1, records_size=len(fault)
    )
    return head + fault.encode()


@pytest.mark.parametrize("cut", [0, 3, 15, 16, 20, 60, -1])
def test_a_malformed_batch_stays_for_the_broker_to_refuse(cut: int) -> None:
    whole = encode_batch([encode_unstamped(Record("orders", b"x"))])
    assert changed_batch(whole[:cut], WHOLE) == whole[:cut]
    torn = whole[:20] + bytes(len(whole) - 20)
    assert changed_batch(torn, WHOLE) == torn
