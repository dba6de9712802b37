"""Delayed messages as records: the stored record that waits, and the delivered message.

A message with a delay level waits in the schedule topic, in the level's queue. A message with a
delivery time waits in the timer topic. It is a whole record there, body included, with its real
topic and queue among its properties. Delivery appends it again to its real queue, without the
properties of waiting. Body, CRC, born time and host stay the same, so nothing needs to be decoded.

The new record gets its own checksum, which would make damaged bytes look valid. So a record must be
verified before it is stored again (:mod:`.stored_proof`). Every reader of the store does that.

The consume queues of both topics contain the delivery time in ms where others contain the tag's
code. So waiting messages can be found without reading a record.

Source: RocketMQ 5.3, ``ScheduleMessageService.messageTimeUp``, ``TimerMessageStore.convert``,
``HookUtils``. There the timer topic's queue has tag codes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from eruca.contract import properties as names
from eruca.contract.limits import PROPERTIES_SIZE_MAX
from eruca.contract.names import RETRY_TOPIC_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.contract.records import (
    CHECKSUM_ROOM,
    HOST_BITS,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    V1_TOPIC_SIZE_MAX,
    RecordLayout,
    layout_of,
)
from eruca.core.messages.delay_levels import LEVELS_DEFAULT, DelayLevels, queue_of_level

DELAYED_TOPICS: Final = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC))
LEVELS: Final = DelayLevels.parse(LEVELS_DEFAULT)
WAITING_NAMES: Final = frozenset(
    name.encode()
    for name in (
        names.REAL_TOPIC,
        names.REAL_QUEUE_ID,
        names.DELAY,
        names.TIMER_OUT_MS,
        names.TIMER_DELIVER_MS,
        names.TIMER_DELAY_MS,
        names.TIMER_DELAY_SECONDS,
        names.TIMER_DELETE_UNIQ_KEY,
        "TIMER_DELAY_LEVEL",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
    )
)
"""Properties that say where a waiting message goes, and when."""

CARRIED_SIZE_MAX: Final = 32  # bytes that a time takes among the properties, instead of a level

_NAME_END: Final = names.NAME_SEPARATOR.encode()
_PROPERTY_END: Final = names.PROPERTY_SEPARATOR.encode()
_INT32_MAX: Final = 2**31 - 1
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_CHECKSUM_NAME: Final = names.CHECKSUM.encode()
_CHECKSUM_ROOM: Final = CHECKSUM_ROOM.encode()


class PropertiesTooLargeError(ValueError):
    """The properties that a record needs in addition to its own do not fit."""


class Destination(NamedTuple):
    """The destination of a delayed message."""

    topic: str
    queue_id: int


class Wait(NamedTuple):
    """The delay of a message: a delay level, or a delivery time."""

    level: int = 0  # 1 and more; 0: until ``deliver_at_ms``
    deliver_at_ms: int = 0  # since the epoch

    def beginning(self, now_ms: int, last_stored_ms: int) -> Wait:
        """Return the same wait, not lengthened by a clock that was set back.

        A level counts from the store time, and the log's store time never decreases.
        """
        if self.level and last_stored_ms > now_ms:
            return Wait(deliver_at_ms=LEVELS.deliver_at_ms(self.level, now_ms))
        return self

    @property
    def place(self) -> Destination:
        """Return the queue in which it waits."""
        if self.level:
            return Destination(SCHEDULE_TOPIC, queue_of_level(self.level))
        return Destination(TIMER_TOPIC, 0)

    def time_ms(self, stored_at_ms: int) -> int:
        """Return the time at which a message that was stored at *stored_at_ms* is due."""
        if self.level:
            return LEVELS.deliver_at_ms(self.level, stored_at_ms)
        return self.deliver_at_ms


def delivery_time(topic: str, properties: bytes, stored_at_ms: int) -> int | None:
    """Return the time at which a record of a delayed topic is due, in ms since the epoch.

    None if its properties do not say so: this broker has not written it.
    """
    if topic == SCHEDULE_TOPIC:
        level = property_of(properties, names.DELAY)
        if not level.isdigit() or not int(level):
            return None
        return LEVELS.deliver_at_ms(min(int(level), LEVELS.max_level), stored_at_ms)
    time = property_of(properties, names.TIMER_OUT_MS)
    return int(time) if time.isdigit() and len(time) < 19 else None


def destination_of(properties: bytes) -> Destination | None:
    """Return the destination of a waiting record, or None if its properties do not name one."""
    topic = property_of(properties, names.REAL_TOPIC)
    queue_id = property_of(properties, names.REAL_QUEUE_ID)
    if not topic or not queue_id.isdigit() or int(queue_id) > _INT32_MAX:
        return None
    return Destination(topic.decode("utf-8", "replace"), int(queue_id))


def is_retry(destination: Destination) -> bool:
    """Tell whether a waiting message is a retry, which nobody may recall."""
    return destination.topic.startswith(RETRY_TOPIC_PREFIX)


def waiting(raw: bytes | memoryview, wait: Wait, destination: Destination) -> bytes:
    """Return the record *raw* as it waits for its delivery to *destination*.

    Raises:
        PropertiesTooLargeError: Its properties leave no room for those of waiting.
    """
    added = {
        names.REAL_TOPIC: destination.topic,
        names.REAL_QUEUE_ID: str(destination.queue_id),
    }
    if wait.level:
        added[names.DELAY] = str(wait.level)
    else:
        added[names.TIMER_OUT_MS] = str(wait.deliver_at_ms)
    record = rewritten(raw, wait.place, without=WAITING_NAMES, added=added)
    size = len(properties_of(record)) - len(_CHECKSUM_ROOM) + CARRIED_SIZE_MAX
    if wait.level and size > PROPERTIES_SIZE_MAX:  # or it could not be carried forward
        raise PropertiesTooLargeError(
            f"the properties take up to {size} bytes; the maximum is {PROPERTIES_SIZE_MAX}"
        )
    return record


def delivered(raw: bytes | memoryview, destination: Destination) -> bytes:
    """Return the waiting record *raw* as it is delivered to *destination*."""
    return rewritten(raw, destination, without=WAITING_NAMES)


def rewritten(
    raw: bytes | memoryview,
    destination: Destination,
    *,
    without: Collection[bytes] = (),
    added: Mapping[str, str] | None = None,
    reconsume_times: int | None = None,
    fields: Mapping[int, bytes] | None = None,
) -> bytes:
    """Return the record *raw* for another queue; its broker's fields must still be stamped.

    It ends in room for its checksum, unless RocketMQ wrote it and its properties leave none.

    Args:
        raw: A record that has been verified, or must still be stamped.
        destination: Its new topic and queue.
        without: Names of the properties to omit.
        added: Properties to append.
        reconsume_times: Replaces its own.
        fields: Bytes that replace others of its head, by their place in it.

    Raises:
        PropertiesTooLargeError: The properties take more room than a record has.
    """
    head, body, properties = _parts_of(raw)
    properties = _kept(properties, without)
    if added:
        properties += names.encode_properties(added).encode()
    if len(properties) <= PROPERTIES_SIZE_MAX:
        properties += _CHECKSUM_ROOM
    elif added:
        raise PropertiesTooLargeError(
            f"the properties take {len(properties)} bytes; the maximum is {PROPERTIES_SIZE_MAX}"
        )
    topic = destination.topic.encode()
    is_v2 = len(topic) > V1_TOPIC_SIZE_MAX
    topic_head = len(topic).to_bytes(2 if is_v2 else 1, "big")
    size = len(head) + len(body) + len(topic_head) + len(topic) + 2 + len(properties)
    head[0:4] = size.to_bytes(4, "big")
    head[4:8] = (MAGIC_V2 if is_v2 else MAGIC_V1).to_bytes(4, "big")
    head[RecordLayout.QUEUE_ID : RecordLayout.QUEUE_ID + 4] = destination.queue_id.to_bytes(
        4, "big"
    )
    if reconsume_times is not None:
        at = layout_of(sys_flag_of(head)).reconsume_times
        head[at : at + 4] = reconsume_times.to_bytes(4, "big")
    if fields is not None:
        for at, replaced in fields.items():
            head[at : at + len(replaced)] = replaced
    return b"".join((head, body, topic_head, topic, len(properties).to_bytes(2, "big"), properties))


def properties_of(raw: bytes | memoryview) -> bytes:
    """Return the stored properties of the record *raw*, its checksum included."""
    return bytes(raw[_properties_start(raw) :])


def properties_size_of(raw: bytes | memoryview) -> int:
    """Return the size of the stored properties of the record *raw*, its checksum included."""
    return len(raw) - _properties_start(raw)


def is_of_topic(raw: bytes | memoryview, topic: str) -> bool:
    """Tell whether *raw* is a record of *topic*, and the sizes of its parts add up.

    Its other contents may be damaged. A record with a long topic is not recognised.
    """
    name = topic.encode()
    size = len(raw)
    if size < RECORD_SIZE_MIN or _UINT32.unpack_from(raw, 4)[0] != MAGIC_V1:
        return False
    layout, body_end = _body_extent(raw)
    properties_at = body_end + 1 + len(name) + 2
    if not layout.body <= body_end < properties_at <= size or raw[body_end] != len(name):
        return False
    if raw[body_end + 1 : properties_at - 2] != name:
        return False
    return properties_at + (raw[properties_at - 2] << 8) + raw[properties_at - 1] == size


def property_of(properties: bytes, name: str) -> bytes:
    """Return a property's value, or nothing if there is none of that name; the last one counts."""
    wanted = name.encode() + _NAME_END
    if wanted not in properties:
        return b""
    for fragment in reversed(properties.split(_PROPERTY_END)):
        if fragment.startswith(wanted) and len(fragment) > len(wanted):
            return fragment[len(wanted) :]
    return b""


def sys_flag_of(raw: bytes | bytearray | memoryview) -> int:
    """Return a record's SYSFLAG."""
    sys_flag: int = _INT32.unpack_from(raw, RecordLayout.SYS_FLAG)[0]
    return sys_flag


def host_bits_of(raw: bytes | memoryview) -> int:
    """Return the value that determines a record's layout; the records of a batch agree in it."""
    return sys_flag_of(raw) & HOST_BITS


def _parts_of(raw: bytes | memoryview) -> tuple[bytearray, bytes | memoryview, bytes]:
    """Return a record's head up to its body, its body, and its properties."""
    layout, body_end = _body_extent(raw)
    return (
        bytearray(raw[: layout.body]),
        raw[layout.body : body_end],
        bytes(raw[_after_topic(raw, body_end) + 2 :]),
    )


def _properties_start(raw: bytes | memoryview) -> int:
    return _after_topic(raw, _body_extent(raw)[1]) + 2


def _body_extent(raw: bytes | memoryview) -> tuple[RecordLayout, int]:
    """Return a record's layout, and the end of its body."""
    layout = layout_of(sys_flag_of(raw))
    body_size: int = _INT32.unpack_from(raw, layout.body_size)[0]
    return layout, layout.body + body_size


def _after_topic(raw: bytes | memoryview, body_end: int) -> int:
    """Return the end of the topic, which follows the body."""
    if _UINT32.unpack_from(raw, 4)[0] == MAGIC_V2:
        return body_end + 2 + (raw[body_end] << 8) + raw[body_end + 1]
    return body_end + 1 + raw[body_end]


def _kept(properties: bytes, without: Collection[bytes]) -> bytes:
    """Return *properties* without the checksum and without the names in *without*."""
    if not without and properties.endswith(_CHECKSUM_ROOM):
        kept = properties[: -len(_CHECKSUM_ROOM)]
        is_plain = _CHECKSUM_NAME not in kept and 2 * _PROPERTY_END not in kept
        if is_plain and kept.endswith(_PROPERTY_END) and not kept.startswith(_PROPERTY_END):
            return kept  # as this broker encodes them
    omitted = _beginnings(frozenset(without))
    fragments = [
        fragment
        for fragment in properties.split(_PROPERTY_END)
        if fragment
        and not fragment.startswith(omitted)
        and fragment not in without
        and fragment != _CHECKSUM_NAME
    ]
    if not fragments:
        return b""
    fragments.append(b"")
    return _PROPERTY_END.join(fragments)


@lru_cache(maxsize=64)
def _beginnings(names: frozenset[bytes]) -> tuple[bytes, ...]:
    """Return the beginnings of properties with one of *names*, and of the checksum."""
    return tuple(name + _NAME_END for name in (*names, _CHECKSUM_NAME))
