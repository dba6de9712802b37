"""Batches: sound ones are taken, others refused whole, and what is stamped reads back."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eruca.contract.errors import (
    ErucaError,
    MalformedBatchError,
    TooLargeError,
    ValidationError,
)
from eruca.contract.hashing import key_hash, tags_code
from eruca.contract.limits import BATCH_COUNT_MAX
from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import (
    HOST_BITS,
    Host,
    Record,
    RecordLayout,
    SysFlag,
    decode_record,
    encode_record,
    encode_unstamped,
)
from eruca.contract.wire import (
    BATCH_PREAMBLE,
    MalformedRecordsError,
    batch_extent,
    batch_sizes,
    encode_batch,
)
from eruca_broker.core.batches.batch import (
    Batch,
    batch_of_records,
    check_batch,
    entries_of,
    read_batch,
)
from eruca_broker.core.batches.record_proof import WRONG_SUM, expected_of, prove_record
from eruca_broker.core.properties.found import KEY_DTYPE
from support.records import decode_draft, has_checksum, tag_and_keys

HOST = Host.parse("127.0.0.1", 10911)
PEER = Host.parse("10.1.2.3", 40_000)
HOST_V6 = Host.parse("::1", 10911)
FEW, MANY = 3, 27

# How many records, and what they have in common.
WAYS = [(FEW, "bodies differ"), (MANY, "one size"), (MANY, "bodies differ"), (MANY, "texts differ")]
ways = pytest.mark.parametrize(("count", "kind"), WAYS, ids=lambda value: str(value))


def record(number: int, **changes: object) -> Record:
    fields: dict[str, object] = {
        "topic": "orders",
        "body": f"body of {number}".encode(),
        "queue_id": 2,
        "born_timestamp": 1_700_000_000_000 + number,
        "properties": encode_properties({"TAGS": "a", "UNIQ_KEY": f"{number:032X}"}),
    }
    return Record(**(fields | changes))  # type: ignore[arg-type]  # fields of many types


def records(count: int, kind: str = "bodies differ") -> list[bytes]:
    return [encode_unstamped(changed(number, kind)) for number in range(count)]


def changed(number: int, kind: str, **changes: object) -> Record:
    """Return a record of a batch of that kind."""
    if kind == "one size":
        changes["body"] = f"body of {number:04}".encode()
    elif kind == "texts differ":
        changes["properties"] = encode_properties({"TAGS": "a", "KEYS": "k" * (number % 5 + 1)})
    return record(number, **changes)


def check(body: bytes, host: Host = HOST) -> Batch:
    return check_batch(bytearray(body), topic="orders", queue_id=2, store_host=host)


@pytest.mark.parametrize(("count", "kind"), [(1, "one size"), *WAYS])
def test_a_sound_batch_is_taken_as_it_is(count: int, kind: str) -> None:
    encoded = records(count, kind)

    batch = check(encode_batch(encoded))

    assert bytes(batch.records) == b"".join(encoded)
    assert list(batch.sizes) == [len(each) for each in encoded]


@ways
@pytest.mark.parametrize("host", [HOST, HOST_V6], ids=["IPv4", "IPv6"])
def test_what_is_stamped_reads_back(count: int, kind: str, host: Host) -> None:
    blank = Host(bytes(len(host.address)), 0)
    sent = [changed(number, kind, born_host=blank, store_host=blank) for number in range(count)]
    encoded = list(map(encode_unstamped, sent))
    peer = PEER if host is HOST else Host.parse("2001:db8::7", 4_000)
    batch = check(encode_batch(encoded), host)

    batch.stamp(
        queue_offset=70, log_offset=5_000, store_timestamp=123, store_host=host, born_host=peer
    )

    for number, start in enumerate(batch.starts):
        stored = decode_record(batch.records, int(start))
        assert (stored.queue_offset, stored.log_offset) == (70 + number, 5_000 + start)
        assert (stored.store_timestamp, stored.store_host, stored.born_host) == (123, host, peer)
        assert stored.body == sent[number].body
        assert stored.property_map() == sent[number].property_map()
        assert has_checksum(bytes(batch.records[int(start) : int(start) + stored.size]))


def test_a_peer_of_the_other_family_leaves_the_born_host_as_it_was() -> None:
    batch = check(encode_batch(records(FEW)))

    batch.stamp(queue_offset=0, log_offset=0, store_timestamp=1, store_host=HOST, born_host=HOST_V6)

    assert decode_record(batch.records).born_host == Host(bytes(4), 0)


def patched(offset: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:offset] + value + raw[offset + len(value) :]


def with_property_size(raw: bytes) -> bytes:
    size = decode_record(raw, check_crc=False)
    at = len(raw) - len(size.properties.encode()) - 2
    return raw[:at] + struct.pack(">H", 60_000) + raw[at + 2 :]


FAULTS: dict[str, Callable[[bytes], bytes]] = {
    "size": patched(0, struct.pack(">i", 92)),
    "negative size": patched(0, struct.pack(">i", -1)),
    "magic": patched(4, b"\xda\xa3\x20\xa8"),
    "two-byte topic": patched(4, b"\xda\xa3\x20\xab"),
    "crc": patched(8, b"\x00\x00\x00\x01"),
    "queue": patched(RecordLayout.QUEUE_ID, struct.pack(">i", 3)),
    "prepared": patched(RecordLayout.SYS_FLAG, struct.pack(">i", SysFlag.PREPARED)),
    "other host family": patched(RecordLayout.SYS_FLAG, struct.pack(">i", SysFlag.BORN_HOST_V6)),
    "unknown flag": patched(RecordLayout.SYS_FLAG, struct.pack(">i", 1 << 20)),
    "born before time": patched(RecordLayout.BORN_TIMESTAMP, struct.pack(">q", -1)),
    "born after time": patched(RecordLayout.BORN_TIMESTAMP, struct.pack(">q", 1 << 60)),
    "reconsume times": patched(72, struct.pack(">i", 1)),
    "prepared offset": patched(76, struct.pack(">q", 1)),
    "negative body": patched(84, struct.pack(">i", -5)),
    "empty body": patched(84, struct.pack(">i", 0)),
    "long body": patched(84, struct.pack(">i", 2_000)),
    "topic": lambda raw: raw.replace(b"orders", b"ordert"),
    "topic size": lambda raw: raw.replace(b"\x06orders", b"\x05orders"),
    "properties size": with_property_size,
    "zero at the end": lambda raw: raw[:-1] + b"\0",
    "no room for a checksum": lambda raw: encode_record(decode_draft(raw)),
    "a checksum in its room": lambda raw: raw[:-2] + b"1\2",
}


@pytest.mark.parametrize("fault", FAULTS)
@ways
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_one_bad_record_refuses_the_whole_batch(
    fault: str, count: int, kind: str, place: str
) -> None:
    encoded = records(count, kind)
    index = {"first": 0, "middle": count // 2, "last": count - 1}[place]
    damaged = FAULTS[fault](encoded[index])
    assert damaged != encoded[index]
    encoded[index] = damaged

    with pytest.raises(MalformedBatchError, match=f"record {index}:"):
        check(encode_batch(encoded))


UNNAMEABLE = {
    "U+0000 in a value": ("city\x01Ro\0me\x02", "", "'city': a property's name or value"),
    "U+0000 in a name": ("ci\0ty\x01Rome\x02", "", "'ci\\x00ty': a property's name or value"),
    "U+0000 in the tag": ("TAGS\x01a\0b\x02", "", "'TAGS': a property's name or value"),
    "U+0000 in a key": ("KEYS\x01k\0 l\x02", "", "'KEYS': a property's name or value"),
    "one dot": ("UNIQ_KEY\x01.\x02", "/UNIQ_KEY", "it consists of dots"),
    "many dots": (f"UNIQ_KEY\x01{'.' * 40}\x02", "/UNIQ_KEY", "it consists of dots"),
    "the last of two": ("UNIQ_KEY\x01a\x02UNIQ_KEY\x01..\x02", "/UNIQ_KEY", "it consists of dots"),
    "a blank": ("UNIQ_KEY\x01a b\x02", "/UNIQ_KEY", "it contains a blank"),
    "a line's end": ("UNIQ_KEY\x01a\n\x02", "/UNIQ_KEY", "it contains a blank"),
    "a wide blank": ("UNIQ_KEY\x01\u3000a\x02", "/UNIQ_KEY", "it contains a blank"),
}


@pytest.mark.parametrize("fault", UNNAMEABLE)
@pytest.mark.parametrize("place", [0, MANY // 2, MANY - 1])
def test_one_message_that_could_not_be_named_refuses_the_whole_batch(
    fault: str, place: int
) -> None:
    text, pointer, detail = UNNAMEABLE[fault]
    encoded = records(MANY)
    encoded[place] = encode_unstamped(record(place, properties=text))

    with pytest.raises(ValidationError) as refused:
        check(encode_batch(encoded))

    at = f"/body/records/{place}/properties{pointer}"
    assert refused.value.errors[0]["pointer"] == at
    assert refused.value.detail.startswith(f"{at}: {detail}")
    assert refused.value.fix


@pytest.mark.parametrize("unique_id", ["...a", "a.", "\u952e", "\x7f", "0" * 300])
def test_other_unique_ids_are_taken(unique_id: str) -> None:
    text = encode_properties({"UNIQ_KEY": unique_id})

    assert check(encode_batch([encode_unstamped(record(0, properties=text))] * FEW)).count == FEW


@ways
def test_a_body_over_the_limit_is_too_large(count: int, kind: str) -> None:
    encoded = records(count, kind)
    encoded[1] = patched(84, struct.pack(">i", 5 * 1024 * 1024))(encoded[1])

    with pytest.raises(TooLargeError, match="record 1"):
        check(encode_batch(encoded))


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_batch_laid_out_for_the_other_family_is_refused(count: int) -> None:
    with pytest.raises(MalformedBatchError, match="store host"):
        check(encode_batch(records(count)), HOST_V6)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_preamble_that_lies_is_refused(count: int) -> None:
    body = encode_batch(records(count))
    size = len(body) - BATCH_PREAMBLE.size - 4 * count
    lies = [
        body[:-1],
        body + b"\0",
        body[:10],
        b"",
        b"ERB2" + body[4:],
        BATCH_PREAMBLE.pack(b"ERB1", count, size, 1) + body[BATCH_PREAMBLE.size :],
        BATCH_PREAMBLE.pack(b"ERB1", 0, size, 0) + body[BATCH_PREAMBLE.size :],
        BATCH_PREAMBLE.pack(b"ERB1", count + 1, size, 0) + body[BATCH_PREAMBLE.size :],
        BATCH_PREAMBLE.pack(b"ERB1", BATCH_COUNT_MAX + 1, size, 0) + body[BATCH_PREAMBLE.size :],
        BATCH_PREAMBLE.pack(b"ERB1", count, size - 1, 0) + body[BATCH_PREAMBLE.size :],
    ]

    for lie in lies:
        with pytest.raises(MalformedBatchError):
            check(lie)


@ways
def test_sizes_that_hide_a_record_are_refused(count: int, kind: str) -> None:
    encoded = records(count, kind)
    sizes = [len(each) for each in encoded]
    sizes[0], sizes[1] = sizes[0] + sizes[1] - 20, 20
    body = BATCH_PREAMBLE.pack(b"ERB1", count, sum(sizes), 0)
    body += struct.pack(f">{count}I", *sizes) + b"".join(encoded)

    with pytest.raises(MalformedBatchError):
        check(body)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), way=st.sampled_from(WAYS))
def test_a_flipped_byte_is_refused_or_changes_nothing_recovery_looks_at(
    data: st.DataObject, way: tuple[int, str]
) -> None:
    body = bytearray(encode_batch(records(*way)))
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] ^= data.draw(st.integers(1, 255))
    try:
        batch = check(bytes(body))
    except ErucaError:
        return

    batch.stamp(queue_offset=0, log_offset=0, store_timestamp=1, store_host=HOST, born_host=None)
    for start in batch.starts:
        assert decode_record(batch.records, int(start)).log_offset == start


def by_python(body: bytes) -> list[tuple[int, list[int]]]:
    """Prove a batch without what is compiled; return each record's tag code and key hashes."""
    count, start = batch_extent(body)
    sizes = batch_sizes(body, count)
    if start + sum(sizes) != len(body):
        raise MalformedBatchError(WRONG_SUM)
    host_bits = int.from_bytes(body[start + RecordLayout.SYS_FLAG :][:4]) & HOST_BITS
    found = []
    for index, size in enumerate(sizes):
        text = prove_record(
            bytearray(body), start, index, size, expected_of("orders", 2, host_bits)
        )
        tag, keys = tag_and_keys(text)
        found.append((tags_code(tag or ""), [key_hash("orders", key) for key in keys]))
        start += size
    return found


fragments = [
    *("TAGS", "KEYS", "UNIQ_KEY", "DELAY", "TIMER_DELAY_MS", "\x01", "\x02", " ", "0", "1", "ab"),
    *("\u952e", "\U0001f511", "\xe9", "\0", "UNIQ_KEY\x01", ".", "\u3000"),
]
texts = st.lists(st.sampled_from(fragments), max_size=12).map("".join)


@settings(max_examples=500, deadline=None)
@given(data=st.data(), some=st.lists(texts, min_size=1, max_size=6))
def test_what_is_compiled_says_what_python_says(data: st.DataObject, some: list[str]) -> None:
    """Of any batch: the same error in the same words, or the same tags and keys."""
    encoded = [encode_unstamped(record(n, properties=text)) for n, text in enumerate(some)]
    body = bytearray(encode_batch(encoded))
    for _ in range(data.draw(st.integers(0, 2))):
        position = data.draw(st.integers(0, len(body) - 1))
        body[position] ^= data.draw(st.integers(1, 255))

    first = bytes(body[BATCH_PREAMBLE.size + 4 * len(some) :])
    # Room for a host of another family is refused before any record is looked at.
    assume(not first[RecordLayout.SYS_FLAG + 3] & SysFlag.STORE_HOST_V6)

    expected = outcome(lambda: by_python(bytes(body)))

    assert outcome(lambda: by_what_is_compiled(bytes(body))) == expected


def by_what_is_compiled(body: bytes) -> list[tuple[int, list[int]]]:
    batch = check(body)
    keys = np.frombuffer(batch.found.keys, KEY_DTYPE)
    return [
        (code, keys["hash"][keys["record"] == start].tolist())
        for code, start in zip(batch.found.tag_codes.tolist(), batch.starts, strict=True)
    ]


def outcome(act: Callable[[], object]) -> object:
    try:
        return act()
    except (MalformedBatchError, TooLargeError, ValidationError) as error:
        return type(error), error.detail
    except MalformedRecordsError as error:
        return MalformedBatchError, str(error)


@ways
@pytest.mark.parametrize("place", [0, 1, -1])
def test_what_a_producer_may_vary_does_not_refuse_a_batch(
    count: int, kind: str, place: int
) -> None:
    encoded = records(count, kind)
    free = {
        16: struct.pack(">i", -7),  # the application's flag
        RecordLayout.SYS_FLAG: struct.pack(">i", SysFlag.COMPRESSED),
        RecordLayout.BORN_TIMESTAMP: struct.pack(">q", 253_402_300_799_999),
        RecordLayout.QUEUE_OFFSET: b"\xff" * 16,
        RecordLayout.BORN_HOST: b"\xff" * 24,
    }
    for offset, value in free.items():
        some = list(encoded)
        some[place] = patched(offset, value)(some[place])

        batch = check(encode_batch(some))

        assert bytes(batch.records) == b"".join(some)


@pytest.mark.parametrize("body_size", [1, 4_096, 4_097, 20_000])
def test_bodies_of_any_size_are_held_to_their_crc(body_size: int) -> None:
    sent = [record(number, body=bytes([number]) * body_size) for number in range(MANY)]
    encoded = list(map(encode_unstamped, sent))

    assert check(encode_batch(encoded)).count == MANY
    encoded[5] = encoded[5].replace(b"\x05" * body_size, b"\x05" * (body_size - 1) + b"\x06")
    with pytest.raises(MalformedBatchError, match="record 5: its body does not match its CRC"):
        check(encode_batch(encoded))


@pytest.mark.parametrize("kind", ["one size", "bodies differ"])
def test_messages_without_properties_make_a_batch(kind: str) -> None:
    encoded = [encode_unstamped(changed(number, kind, properties="")) for number in range(MANY)]

    assert bytes(check(encode_batch(encoded)).records) == b"".join(encoded)


@pytest.mark.parametrize("count", [1, FEW, MANY])
def test_the_brokers_own_records_make_the_same_batch(count: int) -> None:
    checked = check(encode_batch(records(count)))

    own = batch_of_records("orders", 2, records(count))

    assert bytes(own.records) == bytes(checked.records)
    assert list(own.starts) == list(checked.starts)


@pytest.mark.parametrize("key_count", [0, 1, 40])
@pytest.mark.parametrize("size", range(8))
def test_one_record_and_many_are_read_and_stamped_alike(key_count: int, size: int) -> None:
    keys = " ".join(f"k{number}" for number in range(key_count)) or None
    properties = encode_properties({TAGS: "red", KEYS: keys, UNIQ_KEY: "u"})
    raw = encode_unstamped(record(0, body=bytes(size + 1), properties=properties))
    own = batch_of_records("orders", 2, [raw])
    read = read_batch("orders", 2, bytearray(raw), 1)
    place: dict[str, Any] = {
        "queue_offset": 7, "log_offset": 1000, "store_timestamp": 1, "store_host": HOST,
    }  # fmt: skip

    assert (own.found.count, own.found.keys) == (1, read.found.keys)
    assert own.stamp(**place, born_host=None) == read.stamp(**place, born_host=None)
    assert bytes(own.records) == bytes(read.records)
    assert entries_of(own, 1000) == entries_of(read, 1000)
    assert (own.starts, own.sizes) == (read.starts, read.sizes)


def test_a_topic_too_long_for_one_byte_is_refused() -> None:
    with pytest.raises(MalformedBatchError, match="at most 127"):
        check_batch(bytearray(), topic="%RETRY%" + "g" * 125, queue_id=0, store_host=HOST)
