"""Records in JSON: everything a producer wrote, whatever it was."""

from __future__ import annotations

import base64
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.properties import encode_properties
from eruca.contract.records import Host, Record, SysFlag, decode_record, encode_record
from eruca_broker.core.records.rendering import host_text, render, render_log_record

ZLIB = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)


@given(
    body=st.binary(),
    properties=st.dictionaries(st.text(min_size=1), st.text(min_size=1), max_size=4),
    sys_flag=st.sampled_from([0, ZLIB, int(SysFlag.COMPRESSED), 1 | 256, 1 | 512, 1 | 1024]),
    born_timestamp=st.integers(-(2**63), 2**63 - 1),
)
def test_every_record_has_a_json(
    body: bytes, properties: dict[str, str], sys_flag: int, born_timestamp: int
) -> None:
    record = Record(
        topic="t",
        body=body,
        properties=encode_properties(properties),
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
    )

    message, size = render(record, body_room=1_000)
    view, _ = render_log_record(record, body_room=1_000)

    decoded = msgspec.json.decode(msgspec.json.encode([message, view]))
    assert decoded[1]["message"] == decoded[0]
    if not sys_flag:
        shown = decoded[0]["body"]
        plain = shown["text"].encode() if "text" in shown else base64.b64decode(shown["base64"])
        assert (plain, size) == (body, len(body))


@pytest.mark.parametrize("lone", ["\ud800", "a\udfffb"])
def test_a_lone_surrogate_is_shown_as_the_replacement_character(lone: str) -> None:
    record = Record(topic="t", body=b"x", properties=f"KEYS\x01{lone}\x02p\x01{lone}\x02")

    message = render(decode_record(encode_record(record)), body_room=10).message

    assert message.keys == [message.properties["p"]]
    assert "\ufffd" in message.properties["p"]
    assert msgspec.json.encode(message)


def test_the_systems_properties_are_not_the_users() -> None:
    properties = {"mine": "1", "TAGS": "t", "KEYS": "a b", "UNIQ_KEY": "id", "__SHARDINGKEY": "s"}
    record = Record(topic="t", body=b"x", properties=encode_properties(properties))

    view, _ = render_log_record(record, body_room=10)

    message = view.message
    assert message.properties == {"mine": "1"}
    assert (message.tag, message.keys, message.message_id) == ("t", ["a", "b"], "id")
    assert message.sharding_key == "s"
    assert set(view.system_properties) == {"TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY"}


@pytest.mark.parametrize(("room", "is_plain"), [(100, True), (99, False), (0, False)])
def test_a_body_is_undone_only_where_there_is_room(room: int, is_plain: bool) -> None:
    packed = zlib.compress(b"x" * 100)
    record = Record(topic="t", body=packed, sys_flag=ZLIB)

    message, size = render(record, body_room=room)

    assert message.body is not None
    assert (message.body.text == "x" * 100) is is_plain
    assert (message.body.compression == "zlib") is not is_plain
    assert size == (100 if is_plain else len(packed))


@pytest.mark.parametrize("body", [b"", b"x", zlib.compress(b"x" * 1000)[:-3]])
def test_a_body_that_is_not_what_it_says_is_shown_as_it_is(body: bytes) -> None:
    message = render(Record(topic="t", body=body, sys_flag=ZLIB), body_room=10_000).message

    assert message.body is not None
    assert message.body.compression == "zlib"
    assert base64.b64decode(message.body.base64 or "") == body


def test_hosts_are_written_as_in_urls() -> None:
    assert host_text(Host.parse("10.1.2.3", 80)) == "10.1.2.3:80"
    assert host_text(Host.parse("::1", 80)) == "[::1]:80"
