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

from collections.abc import Container, Mapping
from typing import Final, NamedTuple

from eruca.contract import properties as names
from eruca.contract.limits import PROPERTIES_SIZE_MAX
from eruca.contract.names import RETRY_TOPIC_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.contract.records import (
    CHECKSUM_ROOM,
    HOST_BITS,
    MAGIC_V1,
    MAGIC_V2,
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
    without: Container[bytes] = (),
    added: Mapping[str, str] | None = None,
    reconsume_times: int | None = None,
) -> bytes:
    """Return the record *raw* for another queue; its broker's fields must still be stamped.

    It ends in room for its checksum, unless RocketMQ wrote it and its properties leave none.

    Args:
        raw: A record that has been verified, or must still be stamped.
        destination: Its new topic and queue.
        without: Names of the properties to omit.
        added: Properties to append.
        reconsume_times: Replaces its own.

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
    return b"".join((head, body, topic_head, topic, len(properties).to_bytes(2, "big"), properties))


def properties_of(raw: bytes | memoryview) -> bytes:
    """Return the stored properties of the record *raw*, its checksum included."""
    return _parts_of(raw)[2]


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
    at = RecordLayout.SYS_FLAG
    return int.from_bytes(raw[at : at + 4], "big", signed=True)


def host_bits_of(raw: bytes | memoryview) -> int:
    """Return the value that determines a record's layout; the records of a batch agree in it."""
    return sys_flag_of(raw) & HOST_BITS


def _parts_of(raw: bytes | memoryview) -> tuple[bytearray, bytes | memoryview, bytes]:
    """Return a record's head up to its body, its body, and its properties."""
    layout = layout_of(sys_flag_of(raw))
    body_size = int.from_bytes(raw[layout.body_size : layout.body_size + 4], "big")
    body_end = layout.body + body_size
    topic_head_size = 2 if int.from_bytes(raw[4:8], "big") == MAGIC_V2 else 1
    topic_start = body_end + topic_head_size
    topic_size = int.from_bytes(raw[body_end:topic_start], "big")
    return (
        bytearray(raw[: layout.body]),
        raw[layout.body : body_end],
        bytes(raw[topic_start + topic_size + 2 :]),
    )


def _kept(properties: bytes, without: Container[bytes]) -> bytes:
    """Return *properties* without the checksum and without the names in *without*."""
    fragments = [
        fragment
        for fragment in properties.split(_PROPERTY_END)
        if fragment
        and (name := fragment.partition(_NAME_END)[0]) not in without
        and name != _CHECKSUM_NAME
    ]
    return b"".join(fragment + _PROPERTY_END for fragment in fragments)
