"""Idempotent sends: decide whether a requested message is in the log already.

A key is the identity of a send: the message's id or, for a batch, the ids ``KEY-0``, ``KEY-1`` … If
the messages of a batch bring their own ids, it is the first one's id. So nothing is stored about a
key. The earlier send is found by that id and compared with the request. Equal means: the same body,
flag, tag, keys, properties and delay. JSON bodies are compared by value. These may differ: the born
time, the sender, the trace and, unless the request names one, the queue.

A send under a key is in one of these states::

    unknown      nothing with this id in the log, within the window → it is stored
    on the way   a request has handed it to the log                 → wait for its end, look again
    stored       it is visible, hence as durable as promised        → same: the receipts as at first
                                                                      other: refused

Invariants: of all sends to one broker under a key, at most one is on the way, and at most one is
stored within the window. A receipt is repeated only once the first one could be sent. A send that
fails leaves nothing in the log, so the key is unknown again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from eruca.contract import properties as names
from eruca.contract.errors import ValidationError
from eruca.contract.messages import NewMessage
from eruca.contract.names import SCHEDULE_TOPIC
from eruca.contract.records import (
    CHECKSUM_SIZE,
    COMPRESSION_MASK,
    Record,
    RecordLayout,
    SysFlag,
    layout_of,
)
from eruca_broker.core.records.json_bodies import is_same_json
from eruca_broker.core.records.new_messages import body_bytes, stored_properties
from eruca_broker.core.records.scheduled import DELAYED_TOPICS, LEVELS, WAITING_NAMES, delivery_time
from eruca_broker.core.records.times import ms_not_before

_COMPRESSION: Final = int(SysFlag.COMPRESSED) | COMPRESSION_MASK
_STORING_MS_MAX: Final = 60_000  # between receiving a message and storing it; far more than needed
_STAMPED_FROM: Final = RecordLayout.QUEUE_OFFSET
_SYS_FLAG: Final = slice(RecordLayout.SYS_FLAG, RecordLayout.SYS_FLAG + 4)
_WAITING_NAMES: Final = frozenset(name.decode() for name in WAITING_NAMES)
_SHOWN: Final = {
    names.TAGS: "its tag",
    names.KEYS: "its keys",
    names.SHARDING_KEY: "its sharding_key",
    names.BODY_FORMAT: "the form of its body",
}


class Content(NamedTuple):
    """The fields that make two messages equal, except for the delay."""

    body: bytes
    compression: int
    flag: int
    properties: dict[str, str]  # those of waiting and of traces are not among them


def content_of_record(record: Record) -> Content:
    """Return the compared fields of a record."""
    properties = record.property_map()
    left_out = names.TRACE_CONTEXT
    if record.topic in DELAYED_TOPICS or not _WAITING_NAMES.isdisjoint(properties):
        left_out |= _WAITING_NAMES
    properties = _without(properties, left_out)
    return Content(record.body, record.sys_flag & _COMPRESSION, record.flag, properties)


def content_of_message(message: NewMessage, pointer: str) -> Content:
    """Return the compared fields of a message that brings its id; raise as storing it would."""
    assert message.message_id is not None
    text = stored_properties(message, message.message_id, pointer).decode()
    properties = _without(names.decode_properties(text), names.TRACE_CONTEXT)
    return Content(body_bytes(message.body, pointer), 0, message.flag, properties)


def _without(properties: dict[str, str], left_out: frozenset[str]) -> dict[str, str]:
    if left_out.isdisjoint(properties):
        return properties
    return {name: value for name, value in properties.items() if name not in left_out}


def difference(stored: Content, wanted: Content) -> str | None:
    """Return the field that differs from the stored message, in words; None if all are the same."""
    if stored.compression != wanted.compression or not is_same_body(stored, wanted):
        return "its body"
    if stored.flag != wanted.flag:
        return "its flag"
    if stored.properties == wanted.properties:
        return None
    for name in (*_SHOWN, *sorted({*stored.properties, *wanted.properties})):
        if stored.properties.get(name) != wanted.properties.get(name):
            return _SHOWN.get(name, f"its property {name!r}")
    return None


def is_same_body(stored: Content, wanted: Content) -> bool:
    """Tell whether two bodies are the same; JSON is compared by value."""
    if stored.body == wanted.body:
        return True
    formats = (stored.properties.get(names.BODY_FORMAT), wanted.properties.get(names.BODY_FORMAT))
    return formats == (names.JSON_FORMAT, names.JSON_FORMAT) and is_same_json(
        stored.body, wanted.body
    )


def is_same_record(stored: memoryview, wanted: memoryview) -> bool:
    """Tell whether two records have the same bytes, except what a broker stamps and the born time.

    A sender that kept its batch sends the same bytes again. This is much faster than a comparison
    of fields.
    """
    begins = layout_of(int.from_bytes(wanted[_SYS_FLAG])).reconsume_times
    return (
        stored[:_STAMPED_FROM] == wanted[:_STAMPED_FROM]
        and stored[_SYS_FLAG] == wanted[_SYS_FLAG]
        and stored[begins:-CHECKSUM_SIZE] == wanted[begins:-CHECKSUM_SIZE]
    )


def is_delayed_alike(stored: Record, message: NewMessage) -> bool:
    """Tell whether a stored record waits, or waited, as long as *message* requests.

    A delay counts from the first send. For a message that is already in its queue, that time is no
    longer known: a message with a delivery time may be stored there like one with a delay.
    """
    due_ms = _due_ms(message, stored.born_timestamp)
    if stored.topic not in DELAYED_TOPICS:
        return due_ms is None or due_ms <= stored.store_timestamp
    if due_ms is None:
        return False
    properties = stored.properties.encode("utf-8", "surrogatepass")
    time_ms = delivery_time(stored.topic, properties, stored.store_timestamp)
    if message.delay_level is None or time_ms is None:
        return time_ms == due_ms
    if stored.topic == SCHEDULE_TOPIC:
        return stored.property_map().get(names.DELAY) == str(message.delay_level)
    # Carried forward: of its level only the time is left, counted from the store time.
    return 0 <= time_ms - due_ms <= _STORING_MS_MAX


def identified(
    messages: Sequence[NewMessage], pointers: Sequence[str], key: str, *, is_batch: bool
) -> list[NewMessage]:
    """Return *messages*, each with the id by which it is found again under *key*.

    Raises:
        ValidationError: The first message has another id than the key, or only some have one.
    """
    first, pointer = messages[0].message_id, pointers[0]
    if first is not None:
        check_first_id(first, key, f"{pointer}/message_id")
    for message, pointer in zip(messages, pointers, strict=True):
        if (message.message_id is None) != (first is None):
            raise ValidationError.at(
                f"{pointer}/message_id",
                "under an idempotency key either all messages have an id, or none",
                fix="omit the ids: they are made from the key",
            )
    if first is not None:
        return list(messages)
    return [
        msgspec.structs.replace(message, message_id=unique_id)
        for message, unique_id in zip(
            messages, ids_of(key, len(messages)) if is_batch else [key], strict=True
        )
    ]


def ids_of(key: str, count: int) -> list[str]:
    """Return the ids that the messages of a batch get from its key."""
    return [f"{key}-{index}" for index in range(count)]


def check_first_id(unique_id: str, key: str, pointer: str) -> None:
    """Raise ValidationError if a send under *key* would be found by another id."""
    if unique_id != key:
        raise ValidationError.at(
            pointer,
            f"expected the idempotency key {key!r} as the first message's id, found {unique_id!r}",
            fix="omit one of them, or make them equal",
        )


def _due_ms(message: NewMessage, born_ms: int) -> int | None:
    if message.delay_level is not None:
        return LEVELS.deliver_at_ms(message.delay_level, born_ms)
    if message.delay_seconds is not None:
        return born_ms + math.ceil(message.delay_seconds * 1000)
    return None if message.deliver_at is None else ms_not_before(message.deliver_at)
