"""The walk over a segment: what is sound is found whole, and nothing else is taken for a record."""

from __future__ import annotations

import pytest

from eruca.contract.properties import TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import (
    MAGIC_BLANK,
    Host,
    Record,
    RecordLayout,
    SysFlag,
    encode_blank,
    encode_record,
    layout_of,
)
from eruca_broker.core.log import recovery
from eruca_broker.core.log.recovery import Step, walk

BASE = 5_000  # log offset of the segment's first byte
SIZE = 1_000  # bytes of the segment
V4, V6 = Host.parse("10.1.2.3", 10_911), Host.parse("2001:db8::1", 10_911)
LEGAL = set(b"%|ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def record(start: int, body: bytes = b"a body", **fields: object) -> bytes:
    given: dict[str, object] = {
        "topic": "orders",
        "body": body,
        "queue_id": 3,
        "queue_offset": 7,
        "log_offset": BASE + start,
        "store_timestamp": 1_700_000_000_000,
        "born_host": V4,
        "store_host": V4,
        "properties": encode_properties({TAGS: "red", UNIQ_KEY: "0A" * 16}),
    }
    return encode_record(Record(**(given | fields)))  # type: ignore[arg-type]  # of many types


def row(*bodies: bytes, **fields: object) -> bytes:
    """Return records with these bodies, one behind the other."""
    written = b""
    for body in bodies:
        written += record(len(written), body, **fields)
    return written


def segment(written: bytes) -> bytes:
    return written.ljust(SIZE, b"\0")


def last_step(buffer: bytes, start: int = 0, *, durable_offset: int = 0) -> Step:
    *_, last = walk(buffer, start, BASE, durable_offset=durable_offset)
    return last


def bodies(buffer: bytes) -> list[bytes]:
    found = []
    for step in walk(buffer, 0, BASE, durable_offset=0):
        if step.columns is not None:
            starts, sizes = step.columns.body_starts, step.columns.body_sizes
            found += [
                buffer[a : a + n] for a, n in zip(starts.tolist(), sizes.tolist(), strict=True)
            ]
    return found


def test_records_are_found_up_to_where_nothing_is_written() -> None:
    written = row(b"one", b"two", b"three")

    step = last_step(segment(written))

    assert (step.end, step.is_full, step.fault) == (len(written), False, None)
    assert bodies(segment(written)) == [b"one", b"two", b"three"]
    assert step.topics.names == ["orders"]


def test_an_empty_segment_ends_where_it_begins() -> None:
    assert last_step(segment(b"")) == Step(None, recovery._NO_TOPICS, 0, False, None)


def test_a_walk_may_begin_at_any_record() -> None:
    first, both = row(b"one"), row(b"one", b"two")

    step = last_step(segment(both), len(first))

    assert step.columns is not None
    assert step.columns.starts.tolist() == [len(first)]
    assert step.end == len(both)


@pytest.mark.parametrize("host", [V4, V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("topic", ["t", "%RETRY%" + "g" * 200], ids=["V1", "V2"])
def test_every_layout_of_a_record_is_known(host: Host, topic: str) -> None:
    written = row(b"one", b"two", topic=topic, born_host=host, store_host=host)

    step = last_step(segment(written))

    assert (step.end, step.fault) == (len(written), None)
    assert step.topics.names == [topic]


def test_a_blank_record_says_that_the_log_goes_on_in_the_next_segment() -> None:
    written = row(b"one")
    full = written + encode_blank(SIZE - len(written))

    step = last_step(segment(full))

    assert (step.end, step.is_full, step.fault) == (len(written), True, None)


@pytest.mark.parametrize("room", range(8))
def test_a_segment_without_room_for_a_blank_record_is_not_full_but_damaged(room: int) -> None:
    written = row(b"one")

    step = last_step(written + bytes(room))

    assert (step.end, step.is_full) == (len(written), False)
    assert step.fault is not None


@pytest.mark.parametrize("size", [8, 9, SIZE - 1, SIZE + 1, -8])
def test_a_blank_record_of_another_length_than_what_is_left_is_none(size: int) -> None:
    blank = size.to_bytes(4, "big", signed=True) + MAGIC_BLANK.to_bytes(4)

    step = last_step(segment(blank))

    assert (step.end, step.is_full) == (0, False)
    assert step.fault is not None


@pytest.mark.parametrize("host", [V4, V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize(
    ("filler", "properties"),
    [(b"\0", encode_properties({TAGS: "red"})), (b"\0", ""), (b"\xa5", "")],
    ids=["zeros", "zeros, no properties", "garbage, no properties"],
)
def test_a_torn_record_is_cut_wherever_the_crash_tore_it(
    host: Host, properties: str, filler: bytes
) -> None:
    """Exhaustive over the cut. Garbage among properties nothing would tell, but a file has none."""
    fields = {"born_host": host, "store_host": host, "properties": properties}
    whole = row(b"acknowledged", **fields)
    torn = record(len(whole), b"in flight", **fields)
    for kept in range(len(torn)):
        data = whole + torn[:kept] + filler * (len(torn) - kept)
        if data == whole + torn:
            continue  # what was lost is what is there instead

        step = last_step(segment(data), durable_offset=BASE + len(whole))

        assert step.end == len(whole), kept


def test_what_was_durable_may_end_in_a_zero_byte() -> None:
    """RocketMQ writes such a record for a producer that asks for it."""
    written = row(b"one", properties="name\1value\0")

    assert last_step(segment(written), durable_offset=BASE + len(written)).end == len(written)
    assert last_step(segment(written), durable_offset=BASE + len(written) - 1).end == 0


def unproven(encoded: bytes, host: Host) -> set[int]:
    """Return the positions in a record that nothing in it proves: RocketMQ's CRC is the body's."""
    layout = layout_of(int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6) if host is V6 else 0)
    properties = len(encoded) - encoded.index(b"TAGS")
    return {
        *range(RecordLayout.QUEUE_ID, RecordLayout.LOG_OFFSET),  # with FLAG and QUEUEOFFSET
        *range(RecordLayout.SYS_FLAG, layout.body_size),
        *range(len(encoded) - properties - 2 - len(b"orders"), len(encoded) - properties - 2),
        *range(len(encoded) - properties, len(encoded)),
    }


@pytest.mark.parametrize("host", [V4, V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("bit", [1, 0x10, 0x80])
def test_a_flipped_bit_ends_the_walk_before_its_record(host: Host, bit: int) -> None:
    """Exhaustive over the byte; some fields nothing proves, and there it may go unnoticed."""
    before = row(b"one", born_host=host, store_host=host)
    damaged = record(len(before), b"two", born_host=host, store_host=host)
    data = segment(before + damaged)
    free = {len(before) + position for position in unproven(damaged, host)}
    for position in range(len(before), len(before) + len(damaged)):
        flipped = bytearray(data)
        flipped[position] ^= bit

        step = last_step(bytes(flipped), durable_offset=BASE + SIZE)

        assert step.end == len(before) or position in free, position
        assert step.end in (len(before), len(before) + len(damaged))


@pytest.mark.parametrize("topic", ["t", "%RETRY%" + "g" * 130], ids=["V1", "V2"])
@pytest.mark.parametrize("index", [0, 64], ids=["first", "last"])
def test_each_flipped_bit_is_found_among_many_records_as_in_the_record_alone(
    index: int, topic: str
) -> None:
    """Exhaustive over the bit. Nothing lies before the first record, and nothing behind the last.

    A step of more than 64 records compares their topics all at once.
    """
    size = len(record(0, topic=topic, properties=""))
    start, whole = index * size, row(*[b"a body"] * 65, topic=topic, properties="")
    flipped = bytearray(whole)
    for bit in range(size * 8):
        flipped[start + bit // 8] ^= 1 << bit % 8
        *_, alone = walk(flipped[start : start + size], 0, BASE + start)
        *_, among = walk(flipped, 0, BASE)
        flipped[start + bit // 8] ^= 1 << bit % 8

        assert among.end == (len(whole) if alone.end == size else start), bit

    assert last_step(bytes(flipped)).end == len(whole)


@pytest.mark.parametrize("length", [0, 1, 40, 0x7FFFFFFF, 0x80000003, 0xFFFFFFFF])
@pytest.mark.parametrize("index", [0, 64, 99], ids=["first", "inner", "last"])
def test_a_wrong_length_of_a_body_ends_the_walk_before_its_record(index: int, length: int) -> None:
    data = bytearray(row(*[b"%04d" % number for number in range(100)]))
    start = len(data) // 100 * index
    data[start + 84 : start + 88] = length.to_bytes(4)

    step = last_step(bytes(data), durable_offset=BASE + len(data))

    assert (step.end, step.is_full) == (start, False)
    assert step.fault is not None


@pytest.mark.parametrize(
    "at", [RecordLayout.QUEUE_ID, RecordLayout.QUEUE_OFFSET], ids=["queue", "queue offset"]
)
def test_a_negative_place_is_none(at: int) -> None:
    data = bytearray(segment(row(b"one")))
    data[at] ^= 0x80

    assert last_step(bytes(data), durable_offset=BASE + SIZE).end == 0


@pytest.mark.parametrize("letter", sorted(set(range(256)) - LEGAL))
def test_a_topic_that_cannot_be_one_is_damage(letter: int) -> None:
    data = segment(row(b"one")).replace(b"orders", b"o%cders" % letter)

    assert last_step(data, durable_offset=BASE + SIZE).end == 0


def test_stale_bytes_of_an_earlier_crash_are_no_records() -> None:
    """A whole record of before, found where a later one of another length has ended."""
    stale = record(600, b"from before the crash")
    written = row(b"one")

    step = last_step(segment(written + stale))

    assert step.end == len(written)


def test_a_record_larger_than_the_rest_of_its_segment_is_damage() -> None:
    written = row(b"one")

    step = last_step(written[:-1])

    assert step.end == 0
    assert step.fault is not None


@pytest.fixture
def few_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "RECORDS_PER_STEP", 2)


@pytest.mark.usefixtures("few_per_step")
@pytest.mark.parametrize("count", range(6))
@pytest.mark.parametrize("is_full", [False, True])
def test_a_long_segment_is_walked_in_steps(count: int, is_full: bool) -> None:
    written = row(*[b"%d" % number for number in range(count)])
    ending = encode_blank(SIZE - len(written)) if is_full else b""

    steps = list(walk(segment(written + ending), 0, BASE, durable_offset=0))

    columns = [step.columns for step in steps if step.columns is not None]
    assert all(len(some.starts) <= 2 for some in columns)
    assert sum(len(some.starts) for some in columns) == count
    assert [step.is_full for step in steps] == [False] * (len(steps) - 1) + [is_full]
    assert steps[-1].end == len(written)


@pytest.mark.usefixtures("few_per_step")
@pytest.mark.parametrize("index", range(4))
def test_damage_ends_the_walk_in_whatever_step_it_is_met(index: int) -> None:
    written = row(*[b"%d" % number for number in range(4)])
    size = len(written) // 4
    data = bytearray(segment(written))
    data[index * size + 8] ^= 1  # the body's CRC

    steps = list(walk(bytes(data), 0, BASE, durable_offset=0))

    assert steps[-1].end == index * size
    assert steps[-1].fault is not None
    found = [start for s in steps if s.columns is not None for start in s.columns.starts.tolist()]
    assert found == [number * size for number in range(index)]
