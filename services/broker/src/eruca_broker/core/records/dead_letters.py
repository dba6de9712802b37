"""Records of messages that were sent back: the retry, the dead letter, and the redriven message.

Each is the same message, with the same unique id, body and born time. Its destination and its
properties differ. A retry records where the message was stored first, and why it was sent back. So
does a dead letter. A redriven message has none of these properties and starts like a new one.

Room for properties is limited. Retries and dead letters are made even if there is hardly any room.
First they lose the error's text, then all properties that RocketMQ does not have. If even that does
not fit, there is no retry, and a dead letter without any of these properties.

Nothing is copied from a damaged message. A copy would look valid and contain bytes that nobody
sent. Its dead letter has no body and records the place and the damage. It cannot be redriven.

Source: RocketMQ 5.3, ``AbstractSendMessageProcessor.consumerSendMsgBack``. Reason, error, and queue
and offset of origin are ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from eruca.contract import properties as names
from eruca.contract.limits import ERROR_TEXT_SIZE_MAX
from eruca.contract.message_ids import encode_offset_id
from eruca.contract.names import dead_letter_topic, is_derived_topic, retry_topic
from eruca.contract.records import Host, Record, encode_unstamped
from eruca_broker.core.damage import Damage
from eruca_broker.core.records.scheduled import (
    WAITING_NAMES,
    Destination,
    PropertiesTooLargeError,
    Wait,
    rewritten,
    waiting,
)

SENT_BACK_NAMES: Final = frozenset(
    name.encode()
    for name in (
        names.RETRY_TOPIC,
        names.ORIGIN_MESSAGE_ID,
        names.ORIGIN_QUEUE_ID,
        names.ORIGIN_OFFSET,
        names.RETRY_REASON,
        names.RETRY_ERROR,
        names.DEAD_ORIGIN_TOPIC,
        names.DEAD_ORIGIN_MESSAGE_ID,
        names.DEAD_REASON,
        names.DEAD_ERROR,
    )
)
"""Properties that record a message's history."""

_DROPPED_NAMES: Final = SENT_BACK_NAMES | WAITING_NAMES
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f]")  # separators of properties are among them


DAMAGED: Final = "damaged"
"""The reason of a letter that replaces a damaged message."""


class Origin(NamedTuple):
    """The place at which a message was stored when it was sent."""

    topic: str
    queue_id: int | None  # None: RocketMQ has sent it back, and does not record it
    offset: int | None
    message_id: str  # the offset id that it had there


def origin_of(record: Record) -> Origin:
    """Return the place at which a message, perhaps a retry or a dead letter, was stored first.

    Only the broker writes retries and dead letters. Any other message says nothing about another
    place: its producer may have made its properties up, to get it redriven into a topic to which
    the producer may not send.
    """
    properties = record.property_map()
    topic = properties.get(names.RETRY_TOPIC) or properties.get(names.DEAD_ORIGIN_TOPIC)
    if topic is None or not is_derived_topic(record.topic):
        own_id = encode_offset_id(record.store_host, record.log_offset)
        return Origin(record.topic, record.queue_id, record.queue_offset, own_id)
    return Origin(
        topic,
        _number(properties.get(names.ORIGIN_QUEUE_ID)),
        _number(properties.get(names.ORIGIN_OFFSET)),
        properties.get(names.ORIGIN_MESSAGE_ID) or properties.get(names.DEAD_ORIGIN_MESSAGE_ID, ""),
    )


def retry_of(
    raw: bytes | memoryview,
    group: str,
    origin: Origin,
    *,
    reconsume_times: int,
    wait: Wait,
    reason: str,
    error: str | None,
) -> bytes:
    """Return the record of a retry that waits for its time.

    Raises:
        PropertiesTooLargeError: The message's own properties leave no room for its origin.
    """
    destination = Destination(retry_topic(group), 0)
    told = _told_of(origin)
    with_reason = told | {names.RETRY_REASON: reason}
    ways: list[Mapping[str, str]] = [with_reason, told]
    if text := error_text(error):
        ways.insert(0, with_reason | {names.RETRY_ERROR: text})
    for added in ways:
        try:
            retry = rewritten(
                raw,
                destination,
                without=_DROPPED_NAMES,
                added=added,
                reconsume_times=reconsume_times,
            )
            return waiting(retry, wait, destination)
        except PropertiesTooLargeError:
            if added is told:
                raise
    raise AssertionError("the last way has returned or raised")


def dead_letter_of(
    raw: bytes | memoryview,
    group: str,
    origin: Origin,
    *,
    reconsume_times: int,
    reason: str,
    error: str | None,
) -> bytes:
    """Return the record of a dead letter.

    It contains as many of the additional properties as fit, in the end none. It is stored in any
    case, because no other copy would be kept.
    """
    least = {
        names.DEAD_ORIGIN_TOPIC: origin.topic,
        names.DEAD_ORIGIN_MESSAGE_ID: origin.message_id,
    }
    told = least | _told_of(origin) | {names.DEAD_REASON: reason}
    ways: list[Mapping[str, str]] = [told, least]
    if text := error_text(error):
        ways.insert(0, told | {names.DEAD_ERROR: text})

    def letter(added: Mapping[str, str]) -> bytes:
        return rewritten(
            raw,
            Destination(dead_letter_topic(group), 0),
            without=_DROPPED_NAMES,
            added=added,
            reconsume_times=reconsume_times,
        )

    for added in ways:
        with suppress(PropertiesTooLargeError):
            return letter(added)
    return letter({})


def letter_of_damage(
    damage: Damage, group: str, queue: tuple[str, int], *, attempts: int, now_ms: int, host: Host
) -> bytes:
    """Return the record of a dead letter that replaces a damaged message of *queue*."""
    topic, queue_id = queue
    message_id = encode_offset_id(host, damage.log_offset)
    origin = Origin(topic, queue_id, damage.queue_offset, message_id)
    told = _told_of(origin) | {
        names.DEAD_ORIGIN_TOPIC: topic,
        names.DEAD_ORIGIN_MESSAGE_ID: message_id,
        names.DEAD_REASON: DAMAGED,
        names.DEAD_ERROR: error_text(str(damage)),
    }
    return encode_unstamped(
        Record(
            topic=dead_letter_topic(group),
            body=b"",
            born_timestamp=now_ms,
            born_host=host,
            store_host=host,
            reconsume_times=attempts,
            properties=names.encode_properties(told),
        )
    )


def is_of_damage(record: Record, properties: Mapping[str, str]) -> bool:
    """Tell whether a dead letter only replaces a message: sent messages have a unique id."""
    reason = properties.get(names.DEAD_REASON)
    return reason == DAMAGED and not record.body and names.UNIQ_KEY not in properties


def redriven(raw: bytes | memoryview, destination: Destination) -> bytes:
    """Return the record of a dead letter as a message without any retries."""
    return rewritten(raw, destination, without=_DROPPED_NAMES, reconsume_times=0)


def error_text(error: str | None) -> str:
    """Return the stored part of a handler's error: shortened, and without separators."""
    if error is None:
        return ""
    clean = _CONTROLS.sub(" ", error).strip()
    return clean.encode("utf-8", "replace")[:ERROR_TEXT_SIZE_MAX].decode("utf-8", "ignore")


def _told_of(origin: Origin) -> dict[str, str]:
    told = {names.RETRY_TOPIC: origin.topic, names.ORIGIN_MESSAGE_ID: origin.message_id}
    if origin.queue_id is not None and origin.offset is not None:
        told[names.ORIGIN_QUEUE_ID] = str(origin.queue_id)
        told[names.ORIGIN_OFFSET] = str(origin.offset)
    return told


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else None
