"""Received messages: every field of the record, read when asked for, and checked."""

from __future__ import annotations

import pickle
import sys
import zlib
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pydantic
import pytest

from eruca.contract.errors import DamagedMessageError
from eruca.contract.records import COMPRESSION_MASK, Host, Record, SysFlag, encode_record
from eruca.core.messages.body_codecs import UNPACKED_SIZE_MAX
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

QUEUE = MessageQueue("orders", "broker-a", 3)
PREFIX = b"another record"
ZLIB = SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB


def received(
    body: bytes = b"body",
    *,
    topic: str = "orders",
    **fields: Any,  # noqa: ANN401  (Record's fields, of their types)
) -> ReceivedMessage:
    record = encode_record(Record(topic, body, **fields))
    return ReceivedMessage(QUEUE, fields.get("queue_offset", 0), PREFIX + record, 14, len(record))


def test_every_field_of_the_record_is_there() -> None:
    message = received(
        queue_offset=5,
        log_offset=1_234,
        flag=-7,
        born_timestamp=1_700_000_000_123,
        born_host=Host.parse("10.0.0.1", 4_000),
        store_timestamp=1_700_000_001_456,
        store_host=Host.parse("10.0.0.2", 10_911),
        reconsume_times=2,
        properties="TAGS\x01t\x02KEYS\x01a b\x02UNIQ_KEY\x01ID\x02__SHARDINGKEY\x01s\x02p\x01v\x02",
    )

    assert message.body == b"body"
    assert message.text() == "body"
    assert (message.topic, message.broker_name, message.queue_id) == QUEUE
    assert (message.queue_offset, message.log_offset, message.flag) == (5, 1_234, -7)
    assert (message.tag, message.keys, message.sharding_key) == ("t", ["a", "b"], "s")
    assert (message.message_id, message.reconsume_times) == ("ID", 2)
    assert message.properties == {"p": "v"}
    assert message.system_properties.keys() == {"TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY"}
    assert message.born_at == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert message.stored_at == datetime(2023, 11, 14, 22, 13, 21, 456_000, UTC)
    assert message.born_host == Host.parse("10.0.0.1", 4_000)
    assert message.store_host == Host.parse("10.0.0.2", 10_911)
    assert message.offset_message_id == "0A00000200002A9F00000000000004D2"
    assert message.size == len(message.record)


def test_a_record_with_long_addresses_and_a_long_topic_is_read_as_well() -> None:
    message = received(
        topic="%RETRY%" + "g" * 125,
        born_host=Host.parse("::1", 4_000),
        store_host=Host.parse("::2", 10_911),
        store_timestamp=9,
        properties="TAGS\x01t\x02",
    )

    assert (message.body, message.tag, message.stored_at_ms) == (b"body", "t", 9)
    assert (message.born_host.ip, message.store_host.ip) == ("::1", "::2")


def test_what_is_not_there_is_none_or_empty() -> None:
    message = received()

    assert (message.tag, message.keys, message.sharding_key) == (None, [], None)
    assert (message.message_id, message.properties) == (None, {})


@pytest.mark.parametrize("flag", [ZLIB, SysFlag.COMPRESSED], ids=["5.x", "before 5"])
def test_a_compressed_body_is_unpacked(flag: int) -> None:
    assert received(zlib.compress(b"a" * 100), sys_flag=flag).body == b"a" * 100


@pytest.mark.parametrize(
    ("codec", "kind"), [("lz4", SysFlag.COMPRESSION_LZ4), ("zstd", SysFlag.COMPRESSION_ZSTD)]
)
def test_a_body_of_rocketmqs_other_compressions_is_unpacked(codec: str, kind: int) -> None:
    flag = SysFlag.COMPRESSED | kind
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(b"a" * 3_000_000)

    assert received(sink.getvalue().to_pybytes(), sys_flag=flag).body == b"a" * 3_000_000


def packed_zeros(size: int) -> dict[str, tuple[bytes, int]]:
    """Return so many zeros (a multiple of a MiB) in each compression, and its flag."""
    packing = zlib.compressobj()
    pieces = [packing.compress(bytes(1024**2)) for _ in range(size // 1024**2)]
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for _ in range(size // 1024**2):
            stream.write(bytes(1024**2))
    return {
        "zlib": (b"".join([*pieces, packing.flush()]), ZLIB),
        "zstd": (
            sink.getvalue().to_pybytes(),
            SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD,
        ),
    }


@pytest.mark.parametrize("codec", ["zlib", "zstd"])
def test_a_body_that_stands_for_more_than_a_body_may_have_is_an_error(codec: str) -> None:
    body, flag = packed_zeros(UNPACKED_SIZE_MAX)[codec]
    bomb, bomb_flag = packed_zeros(UNPACKED_SIZE_MAX + 1024**2)[codec]

    assert len(received(body, sys_flag=flag).body) == UNPACKED_SIZE_MAX
    with pytest.raises(DamagedMessageError, match="more than"):
        _ = received(bomb, sys_flag=bomb_flag).body


def test_without_pyarrow_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = received(b"x", sys_flag=SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD)

    with pytest.raises(DamagedMessageError, match=r"zstd, which requires pyarrow.*eruca\[arrow\]"):
        _ = message.body


@pytest.mark.parametrize(
    ("body", "fields", "why"),
    [
        (b"body", {"body_crc": 1}, "checksum"),
        (b"no zlib", {"sys_flag": ZLIB}, "cannot be decompressed"),
        (zlib.compress(b"a" * 100)[:-1], {"sys_flag": ZLIB}, "its end is missing"),
        (
            b"no frame",
            {"sys_flag": SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4},
            "cannot be decompressed",
        ),
        (b"x", {"sys_flag": SysFlag.COMPRESSED | COMPRESSION_MASK}, "compression is unknown"),
    ],
)
def test_a_body_that_is_not_what_was_sent_is_an_error(
    body: bytes, fields: dict[str, Any], why: str
) -> None:
    message = received(body, **fields)

    with pytest.raises(DamagedMessageError, match=why):
        _ = message.body


class Order(pydantic.BaseModel):
    number: int


class Invoice(msgspec.Struct):
    number: int


def test_json_is_decoded_as_any_value_or_as_a_type() -> None:
    message = received(b'{"number": 7}')

    assert message.json() == {"number": 7}
    assert message.json(Order) == Order(number=7)
    assert message.json(Invoice) == Invoice(7)
    assert message.json(dict[str, int]) == {"number": 7}


def test_messages_are_equal_if_they_are_the_same_record_of_the_same_queue() -> None:
    message = received(queue_offset=1)
    detached = message.detached()

    assert (detached, hash(detached)) == (message, hash(message))
    assert message != received(queue_offset=2)
    assert message != "message"


def test_a_detached_message_holds_nothing_but_itself() -> None:
    assert len(received().detached()._records) == received().size


def test_it_shows_where_it_is_from() -> None:
    assert repr(received(queue_offset=5, properties="TAGS\x01t\x02")) == (
        "ReceivedMessage(orders/broker-a/3 at 5, tag='t')"
    )


def test_a_retry_is_of_the_topic_it_was_first_sent_to() -> None:
    record = encode_record(
        Record(
            "%RETRY%billing",
            b"body",
            reconsume_times=3,
            properties="RETRY_TOPIC\x01orders\x02ORIGIN_MESSAGE_ID\x01ID-1\x02",
        )
    )
    queue = MessageQueue("%RETRY%billing", "broker-a", 0)

    retry = ReceivedMessage(queue, 7, record, 0, len(record))

    assert (retry.topic, retry.queue.topic) == ("orders", "%RETRY%billing")
    assert (retry.origin_topic, retry.origin_message_id) == ("orders", "ID-1")
    assert (retry.reconsume_times, retry.attempt) == (3, 4)


def test_a_message_that_is_no_copy_is_its_own_origin() -> None:
    message = received()

    assert (message.origin_topic, message.attempt) == ("orders", 1)
    assert message.origin_message_id == message.offset_message_id


def test_retries_in_place_survive_pickling() -> None:
    message = received(reconsume_times=1)
    message._retried = 2

    assert pickle.loads(pickle.dumps(message)).attempt == 4


UNKNOWN = [
    *("body", "tag", "keys", "properties", "system_properties", "sharding_key", "message_id"),
    *("flag", "log_offset", "born_at", "stored_at", "born_host", "store_host", "record"),
    *("reconsume_times", "attempt", "offset_message_id", "stored_at_ms"),
]


@pytest.mark.parametrize("name", UNKNOWN)
def test_of_a_damaged_message_only_its_place_can_be_read(name: str) -> None:
    message = ReceivedMessage.damaged(QUEUE, 7, "at log offset 77: rotten")

    assert (message.queue, message.queue_offset, message.topic) == (QUEUE, 7, "orders")
    assert message.damage == "at log offset 77: rotten"
    with pytest.raises(DamagedMessageError, match=r"orders/broker-a/3 at 7: .*rotten"):
        getattr(message, name)


def test_a_damaged_message_is_itself_wherever_it_goes() -> None:
    message = ReceivedMessage.damaged(QUEUE, 7, "rotten")

    again = pickle.loads(pickle.dumps(message))

    assert again == message == message.detached()
    assert again.damage == "rotten"
    assert message != received(queue_offset=7)
    assert "damaged" in repr(message)
    assert received().damage is None
