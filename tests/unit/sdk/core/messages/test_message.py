"""Messages: what a broker would refuse is refused when they are made, with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import (
    DerivedTopicError,
    ErucaError,
    SystemTopicError,
    TooLargeError,
    ValidationError,
)
from eruca.contract.limits import BODY_SIZE_MAX, PROPERTIES_SIZE_MAX, USER_PROPERTY_COUNT_MAX
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.properties import decode_properties
from eruca.contract.records import Record, encode_record
from eruca.core.messages.message import Message

plain_texts = st.text(
    st.characters(blacklist_characters="\x00\x01\x02", blacklist_categories=["Cs"]), min_size=1
).filter(str.strip)


def test_text_is_stored_as_utf_8() -> None:
    assert Message("orders", "grün").body == "grün".encode()


@pytest.mark.parametrize("body", [b"ab", bytearray(b"ab"), memoryview(b"ab")])
def test_bytes_are_stored_as_they_are(body: bytes | bytearray | memoryview) -> None:
    assert Message("orders", body).body == b"ab"


def test_a_body_is_a_copy_of_a_buffer_that_may_change() -> None:
    buffer = bytearray(b"ab")
    message = Message("orders", buffer)

    buffer[0] = 0

    assert message.body == b"ab"


def test_properties_are_a_copy() -> None:
    given_properties = {"a": "1"}
    message = Message("orders", b"x", properties=given_properties)

    given_properties["a"] = "2"
    message.properties["a"] = "3"

    assert message.properties == {"a": "1"}


@pytest.mark.skipif(
    tuple(map(int, msgspec.__version__.split(".")[:2])) < (0, 21),
    reason="msgspec checks copies from 0.21 on, as Message's documentation says",
)
@pytest.mark.parametrize(
    "fields", [{"properties": {"a": "1"}}, {"sharding_key": "s"}, {"delay_seconds": 5.0}], ids=str
)
def test_a_message_made_of_another_has_nothing_more_of_it(fields: dict[str, Any]) -> None:
    plain = Message("orders", b"x", tag="t")
    rich = Message("orders", b"x", tag="t", **fields)

    made = msgspec.structs.replace(rich, **dict.fromkeys(fields))

    assert made == plain
    assert made.is_delayed is False
    assert made.size_estimate() == plain.size_estimate()


def test_attributes_are_read_only() -> None:
    message = Message("orders", b"x")

    with pytest.raises(AttributeError):
        message.topic = "others"  # type: ignore[misc]


def test_tag_keys_and_id_come_first_in_the_text() -> None:
    message = Message(
        "orders", b"x", tag="t", keys=["k1", "k2"], sharding_key="s", properties={"p": "v"}
    )

    assert message.properties_text("ID") == (
        "TAGS\x01t\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01ID\x02__SHARDINGKEY\x01s\x02p\x01v\x02"
    )


def test_a_message_of_nothing_but_a_body_has_only_an_id() -> None:
    assert Message("orders", b"x").properties_text("ID") == "UNIQ_KEY\x01ID\x02"


def test_a_single_key_is_not_taken_apart() -> None:
    assert Message("orders", b"x", keys="key-1").keys == ("key-1",)


@given(
    tag=st.none() | st.sampled_from(["a", "tag-b", "ü"]),
    keys=st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1), max_size=3),
    sharding_key=st.none() | plain_texts,
    properties=st.dictionaries(plain_texts.map(lambda name: f"user-{name}"), plain_texts),
)
def test_the_text_says_what_the_message_says(
    tag: str | None, keys: list[str], sharding_key: str | None, properties: dict[str, str]
) -> None:
    message = Message(
        "orders", b"x", tag=tag, keys=keys, sharding_key=sharding_key, properties=properties
    )

    expected = {"TAGS": tag, "KEYS": " ".join(keys), "UNIQ_KEY": "ID"}
    expected |= {"__SHARDINGKEY": sharding_key, **properties}
    assert decode_properties(message.properties_text("ID")) == {
        name: value for name, value in expected.items() if value
    }


@given(
    body=st.binary(min_size=1, max_size=50),
    properties=st.dictionaries(plain_texts.map(lambda name: f"user-{name}"), plain_texts),
)
def test_the_size_estimate_is_never_too_small(body: bytes, properties: dict[str, str]) -> None:
    message = Message("orders", body, properties=properties)
    text = message.properties_text("0" * 56)

    assert message.size_estimate() >= len(encode_record(Record("orders", body, properties=text)))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": "with blank"}, "topic"),
        ({"topic": "x" * 128}, "topic"),
        ({"topic": 7}, "topic"),
        ({"body": b""}, "body"),
        ({"body": ""}, "body"),
        ({"body": "\ud800"}, "body"),
        ({"body": {"a": 1}}, "body"),
        ({"tag": ""}, "tag"),
        ({"tag": "a || b"}, "tag"),
        ({"tag": " a"}, "tag"),
        ({"tag": "a\n"}, "tag"),
        ({"tag": "\ud800"}, "tag"),
        ({"tag": 3}, "tag"),
        ({"keys": ["a b"]}, "keys"),
        ({"keys": [""]}, "keys"),
        ({"keys": ["a\x01"]}, "keys"),
        ({"keys": [7]}, "keys"),
        ({"keys": [()]}, "keys"),
        ({"keys": ((),)}, "keys"),
        ({"keys": 7}, "keys"),
        ({"properties": {"UNIQ_KEY": "x"}}, "properties"),
        ({"properties": {"": "x"}}, "properties"),
        ({"properties": {"a": " "}}, "properties"),
        ({"properties": {"a": "\x01"}}, "properties"),
        ({"properties": {"a\x02": "x"}}, "properties"),
        ({"properties": {"a": 1}}, "properties"),
        ({"properties": {f"p{i}": "v" for i in range(USER_PROPERTY_COUNT_MAX + 1)}}, "properties"),
        ({"sharding_key": ""}, "sharding_key"),
        ({"sharding_key": "a\x02"}, "sharding_key"),
        ({"message_id": ""}, "message_id"),
        ({"message_id": "a b"}, "message_id"),
        ({"message_id": "x" * 256}, "message_id"),
        ({"flag": 2**31}, "flag"),
        ({"flag": "1"}, "flag"),
    ],
)
def test_what_is_not_allowed_is_refused_by_its_name(arguments: dict[str, Any], field: str) -> None:
    Message("orders", b"x", tag="t")  # so both are known: a plain message is not checked further
    with pytest.raises(ValidationError, match=f"^{field}: "):
        Message(**{"topic": "orders", "body": b"x", **arguments})


def test_an_error_does_not_repeat_a_long_value_whole() -> None:
    with pytest.raises(ValidationError) as refused:
        Message("orders", b"x", tag="| " * 1_000)

    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("extra", [0, 1])
def test_a_body_has_a_largest_size(extra: int) -> None:
    body = bytes(BODY_SIZE_MAX + extra)
    error: ErucaError | None = None
    try:
        Message("orders", body)
    except TooLargeError as refused:
        error = refused

    assert (error is not None) == bool(extra)


def test_who_gives_a_number_as_a_property_is_told_to_write_it_as_a_text() -> None:
    with pytest.raises(ValidationError, match="properties: amount: 7 is not a text") as refused:
        Message("orders", b"x", properties={"amount": 7})  # type: ignore[dict-item]

    assert "to a text" in (refused.value.fix or "")


@pytest.mark.parametrize("letter", ["a", "ü", "🜚"])
def test_properties_have_a_largest_size_in_bytes(letter: str) -> None:
    fitting = letter * ((PROPERTIES_SIZE_MAX - 200) // len(letter.encode()))

    message = Message("orders", b"x", properties={"name": fitting})

    assert len(message.properties_text("0" * 56).encode()) <= PROPERTIES_SIZE_MAX
    with pytest.raises(TooLargeError, match="properties: "):
        Message("orders", b"x", properties={"name": fitting + letter * 200})


@pytest.mark.parametrize("topic", ["TBW102", "BenchmarkTest", "rmq_sys_wheel_timer", EVENTS_TOPIC])
def test_a_message_to_a_topic_of_the_system_is_refused_as_the_broker_refuses_it(topic: str) -> None:
    with pytest.raises(SystemTopicError) as refused:
        Message(topic, b"x")

    assert refused.value.detail == f"topic {topic!r} is a system topic"
    assert "a topic of your own" in (refused.value.fix or "")


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
def test_nobody_sends_to_what_follows_a_group(prefix: str) -> None:
    with pytest.raises(DerivedTopicError, match="only the broker writes to it"):
        Message(f"{prefix}billing", b"x")


@dataclass
class Order:
    number: int


class Invoice(pydantic.BaseModel):
    number: int


class Receipt(msgspec.Struct):
    number: int


@pytest.mark.parametrize(
    "value",
    [{"number": 7}, Order(7), Invoice(number=7), Receipt(7)],
    ids=lambda v: type(v).__name__,
)
def test_values_become_json(value: object) -> None:
    message = Message.json("orders", value, tag="t")

    assert (message.body, message.tag) == (b'{"number":7}', "t")


def test_messages_are_equal_if_they_say_the_same() -> None:
    one = Message("orders", b"x", tag="t", keys="k", properties={"a": "1"})
    same = Message("orders", "x", tag="t", keys=["k"], properties={"a": "1"})

    assert (one, hash(one)) == (same, hash(same))
    assert one != Message("orders", b"x", tag="t", keys="k", properties={"a": "2"})
    assert one != "orders"


def test_a_message_shows_what_it_is_but_not_its_body() -> None:
    assert repr(Message("orders", b"secret", tag="t", keys="k")) == (
        "Message('orders', 6 bytes, tag='t', keys=('k',), sharding_key=None)"
    )
