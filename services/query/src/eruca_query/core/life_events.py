"""Life events: one step in the life of a message, as one record of the log reports it.

An event identifies its message by the unique id, by the place in a queue, or by the log offset at
which the message waited. The kind of record decides which of them it has.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from eruca.contract import properties as names
from eruca.contract.names import (
    DEAD_LETTER_TOPIC_PREFIX,
    HALF_TOPIC,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from eruca.contract.queries import LifeEventKind
from eruca.contract.records import Record
from eruca.core.messages.delay_levels import LEVELS_DEFAULT, DelayLevels

WAITING_TOPICS: Final = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC))
TOLD_TOPICS: Final = WAITING_TOPICS | {HALF_TOPIC}
TOLD_PREFIXES: Final = (RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX)
_LEVELS: Final = DelayLevels.parse(LEVELS_DEFAULT)
_INT64_DIGITS: Final = 18

Detail: TypeAlias = dict[str, Any]


class Place(NamedTuple):
    """A message's place in a queue of the broker."""

    topic: str
    queue_id: int
    queue_offset: int


class LifeEvent(NamedTuple):
    """One step in a message's life; at least one of the last three fields identifies it."""

    log_offset: int  # of the record that reports it
    at_ms: int  # store time of that record
    kind: LifeEventKind
    detail: Detail
    unique_id: bytes = b""
    place: Place | None = None
    waited_at: int | None = None  # log offset of the message while it waited


def message_event(record: Record) -> LifeEvent | None:
    """Return the event of the message itself that a record of a system topic reports."""
    properties = record.property_map()
    told = _kind_and_detail(record, properties)
    if told is None:
        return None
    kind, detail = told
    return LifeEvent(
        record.log_offset,
        record.store_timestamp,
        kind,
        {name: value for name, value in detail.items() if value is not None},
        unique_id=id_bytes(properties.get(names.UNIQ_KEY, "")),
        place=Place(record.topic, record.queue_id, record.queue_offset),
        waited_at=record.log_offset if record.topic in WAITING_TOPICS else None,
    )


def _kind_and_detail(
    record: Record, properties: dict[str, str]
) -> tuple[LifeEventKind, Detail] | None:
    topic = record.topic
    if topic == HALF_TOPIC:
        is_again = names.PREPARED_QUEUE_OFFSET in properties
        return LifeEventKind.HALF_CARRIED if is_again else LifeEventKind.HALF, {
            "producer_group": properties.get(names.PRODUCER_GROUP),
            "topic": properties.get(names.REAL_TOPIC),
            "queue_id": _number(properties.get(names.REAL_QUEUE_ID)),
        }
    if topic in WAITING_TOPICS:
        due_ms = _due_ms(record, properties)
        real_topic = properties.get(names.REAL_TOPIC, "")
        if real_topic.startswith(RETRY_TOPIC_PREFIX):
            return LifeEventKind.SENT_BACK, {
                "group": real_topic.removeprefix(RETRY_TOPIC_PREFIX),
                "attempt": record.reconsume_times,
                "reason": properties.get(names.RETRY_REASON),
                "error": properties.get(names.RETRY_ERROR),
                "deliver_at_ms": due_ms,
            } | _origin(properties)
        return LifeEventKind.DELAYED, {
            "topic": real_topic or None,
            "queue_id": _number(properties.get(names.REAL_QUEUE_ID)),
            "deliver_at_ms": due_ms,
        }
    if topic.startswith(RETRY_TOPIC_PREFIX):
        return LifeEventKind.RETRY, {
            "group": topic.removeprefix(RETRY_TOPIC_PREFIX),
            "attempt": record.reconsume_times,
            "reason": properties.get(names.RETRY_REASON),
            "error": properties.get(names.RETRY_ERROR),
        } | _origin(properties)
    if topic.startswith(DEAD_LETTER_TOPIC_PREFIX):
        return LifeEventKind.DEAD_LETTER, {
            "group": topic.removeprefix(DEAD_LETTER_TOPIC_PREFIX),
            "attempts": record.reconsume_times,
            "reason": properties.get(names.DEAD_REASON),
            "error": properties.get(names.DEAD_ERROR),
        } | _origin(properties)
    return None


def _origin(properties: dict[str, str]) -> Detail:
    return {
        "origin_topic": properties.get(names.RETRY_TOPIC)
        or properties.get(names.DEAD_ORIGIN_TOPIC),
        "origin_queue_id": _number(properties.get(names.ORIGIN_QUEUE_ID)),
        "origin_offset": _number(properties.get(names.ORIGIN_OFFSET)),
    }


def _due_ms(record: Record, properties: dict[str, str]) -> int | None:
    if record.topic == TIMER_TOPIC:
        return _number(properties.get(names.TIMER_OUT_MS))
    level = _number(properties.get(names.DELAY))
    if not level:
        return None
    return _LEVELS.deliver_at_ms(min(level, _LEVELS.max_level), record.store_timestamp)


def _number(text: str | None) -> int | None:
    if text is None or not text.isdecimal() or not text.isascii() or len(text) > _INT64_DIGITS:
        return None
    return int(text)


def id_bytes(text: str) -> bytes:
    """Return a unique id in the encoding of records."""
    return text.encode("utf-8", "surrogatepass")
