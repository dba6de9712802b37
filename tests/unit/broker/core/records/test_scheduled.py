"""Records that wait: what they become, and that nothing of the message is lost on the way."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from eruca.contract.limits import PROPERTIES_SIZE_MAX
from eruca.contract.names import SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.contract.properties import CHECKSUM, decode_properties, encode_properties
from eruca.contract.records import (
    CHECKSUM_ROOM,
    V1_TOPIC_SIZE_MAX,
    Record,
    decode_record,
    encode_record,
)
from eruca_broker.core.records.scheduled import (
    LEVELS,
    WAITING_NAMES,
    Destination,
    PropertiesTooLargeError,
    Wait,
    delivered,
    delivery_time,
    destination_of,
    is_of_topic,
    properties_of,
    properties_size_of,
    property_of,
    rewritten,
    waiting,
)
from support.records import RECORDS, decode_draft, example_record

NOW = 1_700_000_000_000
topics = st.sampled_from(["orders", "%RETRY%" + "g" * 120, "t" * 127, "%DLQ%" + "x" * 130])
waits = st.one_of(
    st.builds(lambda level: Wait(level=level), st.integers(1, 18)),
    st.builds(lambda ms: Wait(deliver_at_ms=ms), st.integers(0, 253_402_300_799_999)),
)


@given(record=RECORDS, wait=waits, topic=topics, queue_id=st.integers(0, 2**31 - 1))
def test_what_waited_comes_as_it_was_sent(
    record: object, wait: Wait, topic: str, queue_id: int
) -> None:
    raw = encode_record(record)  # type: ignore[arg-type]  # the strategy makes records
    sent, there = decode_record(raw), Destination(topic, queue_id)

    waits = waiting(raw, wait, there)
    came = decode_draft(delivered(waits, there))

    stored = decode_draft(waits)
    properties = stored.properties.encode("utf-8", "surrogatepass")
    assert (stored.topic, stored.queue_id) == wait.place
    assert destination_of(properties) == there
    assert delivery_time(stored.topic, properties, NOW) == wait.time_ms(NOW)
    expected = {
        name: value
        for name, value in sent.property_map().items()
        if name.encode("utf-8", "surrogatepass") not in WAITING_NAMES
    }
    assert came.property_map() == expected
    assert came == replace(sent, topic=topic, queue_id=queue_id, properties=came.properties)


@pytest.mark.parametrize("level", range(1, 19))
def test_each_level_waits_in_a_queue_of_its_own(level: int) -> None:
    assert Wait(level=level).place == (SCHEDULE_TOPIC, level - 1)
    assert Wait(level=level).time_ms(NOW) == NOW + LEVELS.delays_ms[level - 1]
    assert Wait(deliver_at_ms=NOW).place == (TIMER_TOPIC, 0)


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        (SCHEDULE_TOPIC, {"DELAY": "2"}, NOW + 5_000),
        (SCHEDULE_TOPIC, {"DELAY": "99"}, NOW + 7_200_000),
        (SCHEDULE_TOPIC, {"DELAY": "0"}, None),
        (SCHEDULE_TOPIC, {"DELAY": "-1"}, None),
        (SCHEDULE_TOPIC, {"DELAY": "two"}, None),
        (SCHEDULE_TOPIC, {}, None),
        (TIMER_TOPIC, {"TIMER_OUT_MS": "17"}, 17),
        (TIMER_TOPIC, {"TIMER_OUT_MS": "9" * 19}, None),
        (TIMER_TOPIC, {"TIMER_OUT_MS": "soon"}, None),
        (TIMER_TOPIC, {"DELAY": "2"}, None),
    ],
)
def test_what_does_not_say_when_has_no_time(
    topic: str, properties: dict[str, str], expected: int | None
) -> None:
    assert delivery_time(topic, encode_properties(properties).encode(), NOW) == expected


@pytest.mark.parametrize(
    "properties",
    [{}, {"REAL_TOPIC": "orders"}, {"REAL_QID": "1"}, {"REAL_TOPIC": "a", "REAL_QID": "-1"},
     {"REAL_TOPIC": "a", "REAL_QID": str(2**31)}],
)  # fmt: skip
def test_what_does_not_say_where_to_has_no_destination(properties: dict[str, str]) -> None:
    assert destination_of(encode_properties(properties).encode()) is None


def test_a_property_is_found_by_its_whole_name_and_the_last_one_wins() -> None:
    text = (
        encode_properties({"XDELAY": "1", "DELAY": "2"})
        + "DELAY\x013\x02DELAY\x01\x02DELAYED\x014\x02"
    )

    assert property_of(text.encode(), "DELAY") == b"3"
    assert property_of(text.encode(), "NONE") == b""
    assert property_of(b"DELAY\x015", "DELAY") == b"5"


def test_properties_have_room_for_no_more_than_fits() -> None:
    free = PROPERTIES_SIZE_MAX - len("a\x01\x02") - len("b\x011\x02")
    full = replace(example_record(), properties=encode_properties({"a": "x" * free}))

    there = Destination("orders", 0)
    fitting = rewritten(encode_record(full), there, added={"b": "1"})

    assert decode_properties(decode_draft(fitting).properties)["b"] == "1"
    with pytest.raises(PropertiesTooLargeError):
        rewritten(encode_record(full), there, added={"b": "12"})


def test_the_attempts_are_changed_where_they_lie() -> None:
    for address in (b"\1" * 4, b"\2" * 16):
        host = example_record().born_host._replace(address=address)
        record = replace(example_record(), born_host=host, store_host=host)
        changed = rewritten(encode_record(record), Destination("orders", 3), reconsume_times=77)
        assert decode_draft(changed) == replace(
            decode_record(encode_record(record)), reconsume_times=77
        )


@pytest.mark.parametrize("omitted", [frozenset(), frozenset({b"absent"})], ids=["none", "some"])
@pytest.mark.parametrize(
    "stored",
    ["", "\2", "a\1b", "a\1b\2", "\2a\1b\2", "a\1b\2\2c\1d\2", "__CRC32#", "a\1__CRC32#\2"],
    ids=repr,
)
@pytest.mark.parametrize("end", ["", CHECKSUM_ROOM], ids=["without", "with checksum"])
def test_properties_are_kept_one_by_one(omitted: frozenset[bytes], stored: str, end: str) -> None:
    raw = encode_record(replace(example_record(), properties=stored + end))

    kept = properties_of(rewritten(raw, Destination("orders", 1), without=omitted)).decode()

    fragments = [text for text in (stored + end).split("\2") if text.partition("\1")[0]]
    expected = [text for text in fragments if text.partition("\1")[0] != CHECKSUM]
    assert kept == "".join(f"{text}\2" for text in expected) + CHECKSUM_ROOM


@given(record=RECORDS)
def test_a_records_topic_is_recognised(record: Record) -> None:
    raw = encode_record(record)
    is_short = len(record.topic.encode()) <= V1_TOPIC_SIZE_MAX

    assert is_of_topic(raw, record.topic) is is_short
    assert not is_of_topic(raw, f"{record.topic}x")
    assert not is_of_topic(raw[:-1], record.topic)
    assert not is_of_topic(raw + b"x", record.topic)
    assert properties_size_of(raw) == len(properties_of(raw))
