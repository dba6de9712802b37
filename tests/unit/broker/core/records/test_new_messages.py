"""JSON messages become records that the log's own check finds sound.

What is refused, and where the error points, is tested through the API.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from eruca.contract.errors import TooLargeError, ValidationError
from eruca.contract.limits import BODY_SIZE_MAX
from eruca.contract.messages import Body, NewMessage
from eruca.contract.properties import split_keys
from eruca.contract.records import Host
from eruca.contract.wire import encode_batch
from eruca_broker.core.batches.batch import batch_of_records, check_batch
from eruca_broker.core.records.new_messages import (
    Encoded,
    body_bytes,
    encode_messages,
    queue_of_sharding_keys,
)
from support.records import decode_draft

V4 = Host.parse("10.1.2.3", 4567)
V6 = Host.parse("2001:db8::1", 4567)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1).filter(
    lambda text: text.strip() != ""
)
words = texts.map(lambda text: "".join(text.split())).filter(bool)
messages = st.builds(
    NewMessage,
    body=st.one_of(
        st.builds(Body, text=st.text(st.characters(codec="utf-8"), min_size=1)),
        st.builds(Body, base64=st.sampled_from(["AA==", "/+8="])),
        st.builds(Body, json=st.sampled_from([Raw(b"1"), Raw(b'{"a":"b"}')])),
    ),
    tag=st.none() | words.filter(lambda tag: "|" not in tag),
    keys=st.lists(words, max_size=3),
    properties=st.dictionaries(texts.map(lambda name: "p" + name), texts, max_size=3),
    sharding_key=st.none() | texts,
    message_id=st.none() | words.filter(lambda text: text.strip(".") != ""),
    flag=st.integers(-(2**31), 2**31 - 1),
)


def encoded(sent: list[NewMessage], *, born_host: Host = V4, store_host: Host = V4) -> Encoded:
    ids = itertools.count()
    return encode_messages(
        sent,
        pointers=[f"/body/messages/{index}" for index in range(len(sent))],
        topic="orders",
        queue_id=3,
        born_host=born_host,
        store_host=store_host,
        now_ms=1_700_000_000_000,
        next_unique_id=lambda: f"made-{next(ids)}",
    )


@given(
    sent=st.lists(messages, min_size=1, max_size=4),
    born_host=st.sampled_from([V4, V6]),
    store_host=st.sampled_from([V4, V6]),
)
def test_what_is_encoded_is_sound_and_decodes_to_what_was_sent(
    sent: list[NewMessage], born_host: Host, store_host: Host
) -> None:
    records, unique_ids = encoded(sent, born_host=born_host, store_host=store_host)

    sound = check_batch(
        bytearray(encode_batch(records)), topic="orders", queue_id=3, store_host=store_host
    )
    own = batch_of_records("orders", 3, records)
    assert (own.starts, own.found.keys) == (sound.starts, sound.found.keys)
    assert own.found.tag_codes.tolist() == sound.found.tag_codes.tolist()
    for message, raw, unique_id in zip(sent, records, unique_ids, strict=True):
        record = decode_draft(raw)
        properties = record.property_map()
        assert record.body == body_bytes(message.body, "")
        assert (record.topic, record.queue_id, record.flag) == ("orders", 3, message.flag)
        assert (record.born_host, record.born_timestamp) == (born_host, 1_700_000_000_000)
        assert properties.pop("UNIQ_KEY") == unique_id == (message.message_id or unique_id)
        assert properties.pop("TAGS", None) == message.tag
        assert split_keys(properties.pop("KEYS", None)) == message.keys
        assert properties.pop("__SHARDINGKEY", None) == message.sharding_key
        is_json = message.body.json is not UNSET
        assert properties.pop("ERUCA_BODY_FORMAT", None) == ("json" if is_json else None)
        assert properties == message.properties


def test_a_topic_of_more_than_127_bytes_has_the_second_layout() -> None:
    [record], _ = encode_messages(
        [NewMessage(Body(text="x"))],
        pointers=["/body"],
        topic="%RETRY%" + "g" * 200,
        queue_id=0,
        born_host=V4,
        store_host=V4,
        now_ms=0,
        next_unique_id=lambda: "id",
    )

    assert decode_draft(record).topic == "%RETRY%" + "g" * 200


def test_bodies_are_limited_all_together() -> None:
    half = NewMessage(Body(text="x" * (BODY_SIZE_MAX // 2)))

    assert len(encoded([half, half])[0]) == 2
    with pytest.raises(TooLargeError):
        encoded([half, half, NewMessage(Body(text="x"))])


def test_records_are_limited_all_together() -> None:
    wide = NewMessage(Body(text="x"), properties={"p": "x" * 32_000})

    with pytest.raises(TooLargeError):
        encoded([wide] * 140)


def test_sharding_keys_select_one_queue_or_none() -> None:
    plain, keyed = NewMessage(Body(text="x")), NewMessage(Body(text="x"), sharding_key="a")
    other = NewMessage(Body(text="x"), sharding_key="b")
    pointers = ["/0", "/1", "/2"]

    assert queue_of_sharding_keys([plain], pointers[:1], 4) is None
    assert queue_of_sharding_keys([plain, keyed, keyed], pointers, 4) == 97 % 4
    with pytest.raises(ValidationError) as refusal:
        queue_of_sharding_keys([keyed, plain, other], pointers, 4)
    assert refusal.value.errors[0]["pointer"] == "/2/sharding_key"
