"""Sends under one key: whether they are the same, and which ids they get."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from eruca.contract.errors import ValidationError
from eruca.contract.messages import Body, NewMessage
from eruca.contract.names import SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.contract.records import (
    CHECKSUM_SIZE,
    Host,
    Record,
    RecordLayout,
    SysFlag,
    decode_record,
    layout_of,
)
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.new_messages import encode_messages
from eruca_broker.core.records.replays import (
    content_of_message,
    content_of_record,
    difference,
    identified,
    is_delayed_alike,
    is_same_record,
)
from eruca_broker.core.records.scheduled import Destination, Wait, delivered, waiting

HOST = Host.parse("127.0.0.1", 10_911)
BORN = 1_700_000_000_000
MESSAGE = NewMessage(
    body=Body(text="paid"),
    tag="t",
    keys=["k", "l"],
    properties={"a": "1"},
    message_id="id",
    sharding_key="s",
)


def encoded(message: NewMessage) -> bytes:
    return encode_messages(
        [message],
        pointers=["/body"],
        topic="orders",
        queue_id=1,
        born_host=HOST,
        store_host=HOST,
        now_ms=BORN,
        next_unique_id=lambda: "unused",
    ).records[0]


def stored(raw: bytes, *, at_ms: int = BORN + 1) -> Record:
    return replace(decode_record(raw, check_crc=False), store_timestamp=at_ms)


def test_a_message_is_what_it_was_stored_as_wherever_it_lies() -> None:
    raw, place = encoded(MESSAGE), Destination("orders", 1)
    late = waiting(raw, Wait(deliver_at_ms=BORN + 5_000), place)
    wanted = content_of_message(MESSAGE, "/body")

    for form in (raw, late, delivered(late, place)):
        assert difference(content_of_record(stored(form)), wanted) is None


def test_a_record_is_the_same_whatever_was_stamped_into_it() -> None:
    sent = encoded(MESSAGE)
    batch = batch_of_records("orders", 1, [sent])
    other_host = Host.parse("10.9.8.7", 65_535)
    batch.stamp(
        queue_offset=2**40 + 7,
        log_offset=2**50 + 9,
        store_timestamp=BORN + 99,
        store_host=other_host,
        born_host=other_host,
    )

    assert batch.records != sent
    assert is_same_record(batch.records, memoryview(sent))
    stamped = range(RecordLayout.QUEUE_OFFSET, layout_of(0).reconsume_times)
    flag = range(RecordLayout.SYS_FLAG, RecordLayout.SYS_FLAG + 4)
    for position in range(len(sent) - CHECKSUM_SIZE):
        if position in flag or position not in stamped:
            changed = bytearray(sent)
            changed[position] ^= 1
            assert not is_same_record(batch.records, memoryview(changed)), position


def test_a_compressed_body_is_another() -> None:
    record = stored(encoded(MESSAGE))
    packed = content_of_record(replace(record, sys_flag=int(SysFlag.COMPRESSED)))

    assert difference(packed, content_of_message(MESSAGE, "/body")) == "its body"


@pytest.mark.parametrize(
    ("asked", "waits_ms", "is_alike"),
    [
        ({"delay_seconds": 5.0}, 5_000, True),
        ({"delay_seconds": 4.9995}, 5_000, True),  # rounded up, as when it was stored
        ({"delay_seconds": 5.1}, 5_000, False),
        ({"deliver_at": datetime.fromtimestamp(BORN / 1000 + 5, UTC)}, 5_000, True),
        ({"deliver_at": datetime.fromtimestamp(BORN / 1000 + 6, UTC)}, 5_000, False),
        ({}, 5_000, False),
        ({"delay_level": 2}, 5_003, True),  # a level that was carried forward
        ({"delay_level": 2}, 4_999, False),
        ({"delay_level": 3}, 5_003, False),
    ],
)
def test_a_delay_is_compared_by_when_it_ends(
    asked: dict[str, float | datetime], waits_ms: int, *, is_alike: bool
) -> None:
    late = waiting(encoded(MESSAGE), Wait(deliver_at_ms=BORN + waits_ms), Destination("orders", 1))
    assert stored(late).topic == TIMER_TOPIC
    message = NewMessage(body=MESSAGE.body, **asked)  # type: ignore[arg-type]

    assert is_delayed_alike(stored(late), message) is is_alike


def test_a_level_is_that_level() -> None:
    late = stored(waiting(encoded(MESSAGE), Wait(level=3), Destination("orders", 1)))
    assert late.topic == SCHEDULE_TOPIC

    for level in (2, 3, 4):
        message = NewMessage(body=MESSAGE.body, delay_level=level)
        assert is_delayed_alike(late, message) is (level == 3)


def test_what_lies_in_its_queue_may_have_waited_until_then_and_no_longer() -> None:
    record = stored(encoded(MESSAGE), at_ms=BORN + 5_000)
    moment = datetime.fromtimestamp(BORN / 1000, UTC)

    for seconds, is_alike in ((0, True), (5, True), (6, False)):
        asked = NewMessage(body=MESSAGE.body, delay_seconds=seconds)
        assert is_delayed_alike(record, asked) is is_alike
        asked = NewMessage(body=MESSAGE.body, deliver_at=moment + timedelta(seconds=seconds))
        assert is_delayed_alike(record, asked) is is_alike
    assert is_delayed_alike(record, NewMessage(body=MESSAGE.body))


def test_the_ids_of_what_is_sent_follow_from_the_key() -> None:
    plain = NewMessage(body=MESSAGE.body)
    pointers = ["/a", "/b"]

    single = identified([plain], ["/body"], "k", is_batch=False)
    pair = identified([plain, plain], pointers, "k", is_batch=True)
    own = identified([MESSAGE, MESSAGE], pointers, "id", is_batch=True)

    assert [message.message_id for message in single] == ["k"]
    assert [message.message_id for message in pair] == ["k-0", "k-1"]
    assert own == [MESSAGE, MESSAGE]


@pytest.mark.parametrize(
    ("messages", "pointer"),
    [
        ([MESSAGE], "/a/message_id"),
        ([NewMessage(body=MESSAGE.body), MESSAGE], "/b/message_id"),
    ],
)
def test_ids_that_do_not_follow_from_it_are_refused(
    messages: list[NewMessage], pointer: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        identified(messages, ["/a", "/b"][: len(messages)], "k", is_batch=True)

    assert refused.value.errors[0]["pointer"] == pointer
