"""Deliveries: what a broker's JSON tells becomes the message other consumers get."""

from __future__ import annotations

import zlib
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from eruca.contract.deliveries import Delivery as WireDelivery
from eruca.contract.errors import DamagedMessageError
from eruca.contract.records import Host
from eruca.core.consuming.delivery import delivery_of
from eruca.core.messages.message_queue import MessageQueue

MESSAGE: dict[str, Any] = {
    "topic": "flights",
    "queue_id": 3,
    "queue_offset": 1041,
    "log_offset": 8_201_544,
    "size": 231,
    "message_id": "7F00000100002A9F000000000134F1F5",
    "offset_message_id": "7F00000100002A9F00000000007D2548",
    "tag": "UA",
    "keys": ["UA1545", "N14228"],
    "sharding_key": "N14228",
    "properties": {"color": "red"},
    "body": {"text": "grün"},
    "flag": -7,
    "reconsume_times": 0,
    "born_at": "2026-11-21T08:00:00.121Z",
    "born_host": "[::1]:52044",
    "stored_at": "2026-11-21T08:00:00.123Z",
    "store_host": "127.0.0.1:10911",
}


def wire(attempt: int = 1, **fields: Any) -> WireDelivery:  # noqa: ANN401
    return msgspec.convert(
        {
            "handle": "abc",
            "attempt": attempt,
            "visible_at": "2026-11-21T08:01:00.130Z",
            "message": MESSAGE | fields,
        },
        WireDelivery,
    )


def test_a_delivery_says_what_the_broker_said() -> None:
    delivery = delivery_of(wire(attempt=3), "broker-a", 60.0, now=100.0)
    message = delivery.message

    assert (delivery.attempt, delivery.handle, delivery.broker_name) == (3, "abc", "broker-a")
    assert delivery.visible_at == datetime(2026, 11, 21, 8, 1, 0, 130_000, UTC)
    assert (delivery.invisible_seconds, delivery.kept_until) == (60.0, 160.0)
    assert message.queue == MessageQueue("flights", "broker-a", 3)
    assert (message.queue_offset, message.log_offset, message.flag) == (1041, 8_201_544, -7)
    assert (message.tag, message.keys) == ("UA", ["UA1545", "N14228"])
    assert (message.sharding_key, message.properties) == ("N14228", {"color": "red"})
    assert message.message_id == MESSAGE["message_id"]
    assert message.offset_message_id == MESSAGE["offset_message_id"]
    assert message.text() == "grün"
    assert message.born_at.isoformat() == "2026-11-21T08:00:00.121000+00:00"
    assert message.stored_at.isoformat() == "2026-11-21T08:00:00.123000+00:00"
    assert message.born_host == Host.from_text("[::1]:52044")
    assert message.attempt == 3


def test_what_a_message_lacks_it_lacks_here_too() -> None:
    bare = wire(message_id=None, tag=None, keys=[], sharding_key=None, properties={}, body={})

    message = delivery_of(bare, "b", 60.0, now=0.0).message

    assert (message.message_id, message.tag, message.keys) == (None, None, [])
    assert (message.sharding_key, message.properties, message.body) == (None, {}, b"")


def test_a_body_that_is_no_text_comes_as_bytes() -> None:
    body = {"base64": b64encode(b"\xff\x00").decode()}

    assert delivery_of(wire(body=body), "b", 60.0, now=0.0).message.body == b"\xff\x00"


def test_a_body_the_broker_left_packed_is_unpacked_or_said_to_be_strange() -> None:
    packed = b64encode(zlib.compress(b"plain")).decode()

    own = delivery_of(wire(body={"base64": packed, "compression": "zlib"}), "b", 1.0, now=0.0)
    foreign = delivery_of(wire(body={"base64": packed, "compression": "lz4"}), "b", 1.0, now=0.0)

    assert own.message.body == b"plain"
    with pytest.raises(DamagedMessageError):
        assert foreign.message.body


@pytest.mark.parametrize(
    "fields", [{"born_at": "yesterday"}, {"store_host": "nowhere"}, {"body": {"base64": "!"}}]
)
def test_an_answer_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (whatever the part's own reader says)
        delivery_of(wire(**fields), "b", 60.0, now=0.0)
