"""Records to test with: strategies for any record, its parts, and one plain example."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import strategies as st

from eruca.contract.properties import encode_properties, split_keys
from eruca.contract.records import (
    CHECKSUM_ROOM,
    Buffer,
    Host,
    Record,
    body_crc,
    decode_record,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# All of Unicode but what separates properties; lone surrogates are a Java producer's right.
PROPERTY_PARTS = st.text(st.characters(exclude_characters="\x01\x02"), min_size=1, max_size=12)
PROPERTIES = st.dictionaries(PROPERTY_PARTS, PROPERTY_PARTS, max_size=5)
TOPICS = st.text(st.characters(codec="utf-8"), max_size=70)
HOSTS = st.builds(
    Host,
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)),
    st.integers(0, 65_535),
)
RECORDS = st.builds(
    Record,
    topic=TOPICS,
    body=st.binary(max_size=300),
    queue_id=INT32,
    flag=INT32,
    queue_offset=INT64,
    log_offset=INT64,
    sys_flag=INT32,
    born_timestamp=INT64,
    born_host=HOSTS,
    store_timestamp=INT64,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_offset=INT64,
    properties=PROPERTIES.map(encode_properties),
)


def decode_draft(raw: Buffer, start: int = 0) -> Record:
    """Return a record that is still to be stamped, without the room for its checksum."""
    record = decode_record(raw, start, check_crc=False)
    assert record.properties.endswith(CHECKSUM_ROOM), record.properties
    assert record.body_crc == body_crc(record.body)
    return replace(record, properties=record.properties.removesuffix(CHECKSUM_ROOM))


def example_record(*, topic: str = "orders", body: bytes = b"a body") -> Record:
    """Return a record with something in every field."""
    return Record(
        topic=topic,
        body=body,
        queue_id=3,
        flag=17,
        queue_offset=5,
        log_offset=1_000,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        born_host=Host.parse("192.168.0.1", 40_000),
        store_timestamp=1_700_000_000_100,
        store_host=Host.parse("10.0.0.1", 10_911),
        reconsume_times=1,
        prepared_offset=9,
        properties=encode_properties({"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "ID"}),
    )


def tag_and_keys(properties: bytes) -> tuple[str | None, list[str]]:
    """Return a record's tag, and its keys with the unique id first."""
    values: dict[bytes, str] = {}
    for fragment in properties.split(b"\x02"):
        name, _, value = fragment.partition(b"\x01")
        if value and name in (b"TAGS", b"KEYS", b"UNIQ_KEY"):
            values[name] = value.decode("utf-8", "replace")
    unique = values.get(b"UNIQ_KEY")
    keys = split_keys(values.get(b"KEYS"))
    return values.get(b"TAGS"), [unique, *keys] if unique else keys


def has_checksum(encoded: bytes) -> bool:
    """Tell whether a record ends in the form of a checksum."""
    return re.fullmatch(rb"__CRC32#\x01[0-9]{10}\x02", encoded[-20:]) is not None
