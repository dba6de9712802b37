"""Runs are divided by compiled code; recovery's walk divides them alike, and names the faults."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import Host, Record, SysFlag, decode_record, encode_blank, encode_record
from eruca_broker.core.log import copied_run
from eruca_broker.core.log.copied_run import RefusedRunError, StoredBatch, prove_run
from eruca_broker.core.state.events import EpochBegan, encode_event

BASE = 5_000
V6 = Host.parse("2001:db8::7", 4_000)
V4 = Host.parse("10.0.0.1", 10_911)
PROPERTIES = ("", "TAGS\x01red\x02", "KEYS\x01a b\x02UNIQ_KEY\x01id\x02", "KEYS\x01\xfc\x02")
EVENT = decode_record(
    encode_event(EpochBegan(1, 2, "uid", "10.0.0.1:10911", 0), now_ms=1, host=V4), check_crc=False
).body


class Place(NamedTuple):
    """The place of a record, and its form."""

    topic: str
    queue_id: int
    timestamp: int
    properties: str
    born_host: Host
    store_host: Host


PLACES = st.builds(
    Place,
    topic=st.sampled_from(["orders", "bills", EVENTS_TOPIC, "t" * 130]),
    queue_id=st.integers(0, 1),
    timestamp=st.integers(1, 2),
    properties=st.sampled_from(PROPERTIES),
    born_host=st.sampled_from([V4, V6]),
    store_host=st.sampled_from([V4, V6]),
)


def run_of(places: list[Place]) -> bytearray:
    """Return records in these places, with the queue offsets that follow."""
    run, ends = bytearray(), dict[tuple[str, int], int]()
    for place in places:
        queue = place.topic, place.queue_id
        record = Record(
            place.topic,
            EVENT if place.topic == EVENTS_TOPIC else b"body",
            queue_id=place.queue_id,
            queue_offset=ends.get(queue, 3),
            log_offset=BASE + len(run),
            store_timestamp=place.timestamp,
            properties=place.properties,
            born_host=place.born_host,
            store_host=place.store_host,
        )
        ends[queue] = record.queue_offset + 1
        run += encode_record(record, with_checksum=True)
    return run


def plain(run: bytearray, room: int) -> list[StoredBatch] | None:
    return copied_run._plain(memoryview(run), BASE, room=room)


def walked(run: bytearray, room: int) -> list[StoredBatch]:
    filled = len(run) == room
    return list(copied_run._proved(memoryview(run), BASE, is_filled=filled, room=room))


def shown(batches: list[StoredBatch]) -> list[object]:
    return [
        (
            *(it.batch.topic, it.batch.queue_id, it.batch.count, bytes(it.batch.records)),
            *(it.batch.found.keys, it.batch.found.tag_codes.tolist(), it.batch.sizes),
            *(it.queue_offset, it.log_offset, it.store_timestamp, bytes(it.entries), it.event),
        )
        for it in batches
    ]


@given(st.lists(PLACES, min_size=1, max_size=12), st.booleans())
@settings(deadline=None)
def test_compiled_code_and_the_walk_divide_a_run_alike(places: list[Place], is_full: bool) -> None:
    run = run_of(places)
    room = len(run) + 1_000
    if is_full:
        run += encode_blank(50).ljust(50, b"\0")
        room = len(run)

    divided = plain(run, room)

    assert divided is not None
    assert shown(divided) == shown(walked(run, room))


@given(st.lists(PLACES, min_size=1, max_size=6), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_compiled_code_takes_nothing_that_the_walk_refuses(
    places: list[Place], random: Random
) -> None:
    run = run_of(places)
    for _ in range(20):
        changed = bytearray(run)
        changed[random.randrange(len(run))] ^= random.randrange(1, 256)
        assert plain(changed, len(run) + 1_000) is None
    for end in random.sample(range(1, len(run)), 5):
        part = run[:end]
        if plain(part, len(run) + 1_000) is not None:
            assert shown(walked(part, len(run) + 1_000)), "it ends after a record"


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "no topic"},
        {"queue_id": -1},
        {"queue_offset": -1},
        {"log_offset": BASE + 1},
    ],
    ids=str,
)
def test_a_sound_record_that_cannot_be_a_replicas_is_refused(changes: dict[str, object]) -> None:
    record = Record("orders", b"body", queue_offset=3, log_offset=BASE)
    run = bytearray(encode_record(replace(record, **changes), with_checksum=True))  # type: ignore[arg-type]

    assert plain(run, 10_000) is None
    with pytest.raises(RefusedRunError):
        prove_run(memoryview(run), BASE, room=10_000, segment_bytes=10_000, log_id="", epoch=0)


@pytest.mark.parametrize("flag", [SysFlag.PREPARED, SysFlag.ROLLBACK], ids=str)
def test_a_record_of_no_queue_is_left_to_the_walk(flag: SysFlag) -> None:
    """A log that RocketMQ began has such records; the writer refuses them after the first event."""
    record = Record("orders", b"body", queue_offset=3, log_offset=BASE, sys_flag=int(flag))
    run = encode_record(record, with_checksum=True)

    assert plain(bytearray(run), 10_000) is None
    proved = prove_run(memoryview(run), BASE, room=10_000, segment_bytes=10_000, log_id="", epoch=0)
    assert [bytes(stored.entries) for stored in proved.batches] == [b""]


def test_more_batches_than_one_call_divides_are_all_returned() -> None:
    place = Place("orders", 0, 1, "", V4, V4)
    places = [place._replace(queue_id=number % 2) for number in range(1_300)]
    run = run_of(places)

    divided = plain(run, len(run) + 100)

    assert divided is not None
    assert len(divided) == 1_300 > 2 * copied_run._DIVIDED_MAX
    assert shown(divided) == shown(walked(run, len(run) + 100))


def test_a_run_without_room_for_a_blank_record_behind_it_is_refused() -> None:
    run = run_of([Place("orders", 0, 1, "", V4, V4)])

    assert plain(run, len(run) + 7) is None
    assert plain(run, len(run) + 8) is not None
    assert plain(run, len(run)) is None


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("segment_count", [1, 2])
def test_the_batches_of_a_run_refer_to_its_bytes(
    kind: type[bytes | bytearray], segment_count: int
) -> None:
    filled = bytearray()
    for _ in range(segment_count):
        record = Record("orders", bytes(1024 * 1024), queue_offset=3, log_offset=BASE + len(filled))
        filled += encode_record(record, with_checksum=True)
        size = len(filled)
        filled += encode_blank(50).ljust(50, b"\0")
    run = kind(filled[:size])
    room = len(filled) // segment_count

    tracemalloc.start()
    try:
        proved = prove_run(
            memoryview(run), BASE, room=room, segment_bytes=room + 1, log_id="", epoch=0
        )
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [stored.batch.count for stored in proved.batches] == [1] * segment_count
    assert peak_bytes < 100_000
