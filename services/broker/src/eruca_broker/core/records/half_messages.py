"""Half messages as records: stored until the decision, then committed, parked or carried forward.

A half message is a whole record of the half topic, with its real topic and queue among its
properties. A commit appends it again to its real queue, with the flag of a commit and the half
message's log offset. Parking and carrying forward append it again too. Body, CRC, born time and
host stay the same, so nothing needs to be decoded.

An **op message** marks a half message as finished: a message of the op topic with the tag ``d``,
whose body is the half message's queue offset. A RocketMQ broker that opens the store reads both
topics as its own.

Source: RocketMQ 5.3, ``TransactionalMessageBridge``, ``EndTransactionProcessor``,
``DefaultTransactionalMessageCheckListener``.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from eruca.contract import properties as names
from eruca.contract.limits import DELAY_LEVEL_MAX, PROPERTIES_SIZE_MAX
from eruca.contract.names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from eruca.contract.records import (
    BLANK_SIZE_MIN,
    CHECKSUM_SIZE,
    Host,
    RecordLayout,
    SysFlag,
    layout_of,
)
from eruca.core.messages.delay_levels import TIMER_UNITS
from eruca_broker.core.records.own_records import own_records
from eruca_broker.core.records.scheduled import (
    WAITING_NAMES,
    Destination,
    PropertiesTooLargeError,
    Wait,
    properties_of,
    properties_size_of,
    property_of,
    rewritten,
    sys_flag_of,
    waiting,
)
from eruca_broker.core.records.times import TIMESTAMP_MAX

HALF_PLACE: Final = Destination(HALF_TOPIC, 0)
OP_PLACE: Final = Destination(OP_HALF_TOPIC, 0)
PARKED_PLACE: Final = Destination(CHECK_MAX_TOPIC, 0)
OP_TAG: Final = "d"
_OFFSET_SEPARATOR: Final = ","
_PROPERTIES_RESERVE: Final = 128  # bytes that parking and carrying add
_STEP_SIZE_MAX: Final = 10 * 1024  # bytes that later steps add beside the message: reasons are long
_HALF_NAMES: Final = WAITING_NAMES | {
    name.encode()
    for name in (names.TRANSACTION_PREPARED, names.CHECK_TIMES, names.PREPARED_QUEUE_OFFSET)
}
_SAID_NAMES: Final = frozenset(
    (
        names.TAGS,
        names.KEYS,
        names.SHARDING_KEY,
        names.BODY_FORMAT,
        names.DELAY,
        names.TIMER_DELAY_MS,
        names.TIMER_DELIVER_MS,
    )
)
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
# Plain numbers: operations of a SysFlag take a microsecond each.
_COMMIT: Final = int(SysFlag.COMMIT)
_ROLLBACK: Final = int(SysFlag.ROLLBACK)
_OP_PROPERTIES: Final = names.encode_properties({names.TAGS: OP_TAG}).encode()


def half_message(
    raw: bytes,
    destination: Destination,
    *,
    transaction_id: str,
    producer_group: str,
    immunity_seconds: float | None = None,
    delay: dict[str, str] | None = None,
) -> bytes:
    """Return the record *raw* as a half message that goes to *destination* if it is committed.

    Args:
        raw: A valid record.
        destination: Its real topic and queue.
        transaction_id: Its unique id.
        producer_group: The group to ask about it.
        immunity_seconds: No check before that; RocketMQ knows whole seconds.
        delay: The result of :func:`delay_properties`.

    Raises:
        PropertiesTooLargeError: Its properties leave no room for those of a half message.
    """
    added = {
        names.TRANSACTION_PREPARED: "true",
        names.PRODUCER_GROUP: producer_group,
        names.TRANSACTION_ID: transaction_id,
        names.REAL_TOPIC: destination.topic,
        names.REAL_QUEUE_ID: str(destination.queue_id),
    }
    if immunity_seconds is not None:
        added[names.CHECK_IMMUNITY_SECONDS] = str(math.ceil(immunity_seconds))
    sys_flag = sys_flag_of(raw) & ~_ROLLBACK  # or no queue has it
    fields = {RecordLayout.SYS_FLAG: _INT32.pack(sys_flag)}
    half = rewritten(raw, HALF_PLACE, added=added | (delay or {}), fields=fields)
    size = properties_size_of(half) - CHECKSUM_SIZE + _PROPERTIES_RESERVE
    if size > PROPERTIES_SIZE_MAX:
        raise PropertiesTooLargeError(
            f"the properties of its half message take {size} bytes; the maximum is "
            f"{PROPERTIES_SIZE_MAX}"
        )
    return half


def half_size_max(segment_bytes: int) -> int:
    """Return the maximum size of a half message: each later step must fit into one segment."""
    return segment_bytes - BLANK_SIZE_MIN - _STEP_SIZE_MAX


def delay_properties(
    *, level: int | None, delay_ms: int | None, deliver_at_ms: int | None
) -> dict[str, str]:
    """Return the properties by which a half message records its delay after the commit."""
    said = {
        names.DELAY: level,
        names.TIMER_DELAY_MS: delay_ms,
        names.TIMER_DELIVER_MS: deliver_at_ms,
    }
    return {name: str(value) for name, value in said.items() if value is not None}


def said_properties(text: str) -> dict[str, str]:
    """Return the properties of a half message that its sender set.

    Its id and its trace are not among them.
    """
    return {
        name: value
        for name, value in names.decode_properties(text).items()
        if name in _SAID_NAMES or name not in names.RESERVED | names.TRACE_CONTEXT
    }


def wait_of(half: bytes | memoryview, now_ms: int) -> Wait | None:
    """Return the delay of a half message that is committed now; None: no delay.

    If several properties contradict each other, RocketMQ's rules apply: see
    :mod:`eruca.core.messages.delay_levels`. A time that cannot be read delays nothing; RocketMQ
    would not have stored it.
    """
    properties = properties_of(half)
    level = _number(property_of(properties, names.DELAY))
    if level:
        return Wait(level=min(level, DELAY_LEVEL_MAX))
    for name, unit_ms, is_from_now in TIMER_UNITS:
        if said := property_of(properties, name):
            due_ms = min(is_from_now * now_ms + _number(said) * unit_ms, TIMESTAMP_MAX)
            return Wait(deliver_at_ms=due_ms) if due_ms > now_ms else None
    return None


def committed(
    half: bytes | memoryview, destination: Destination, half_log_offset: int, wait: Wait | None
) -> bytes:
    """Return the half message at *half_log_offset* as it goes to *destination*, or waits for it."""
    sys_flag = sys_flag_of(half) & ~_ROLLBACK | _COMMIT
    fields = {
        RecordLayout.SYS_FLAG: _INT32.pack(sys_flag),
        layout_of(sys_flag).prepared_offset: _INT64.pack(half_log_offset),
    }
    final = rewritten(half, destination, without=_HALF_NAMES, fields=fields)
    return final if wait is None else waiting(final, wait, destination)


def parked(half: bytes | memoryview, checks: int) -> bytes:
    """Return a half message as an operator sees it."""
    return rewritten(
        half,
        PARKED_PLACE,
        without={names.CHECK_TIMES.encode()},
        added={names.CHECK_TIMES: str(checks)},
    )


def carried(half: bytes | memoryview, checks: int) -> bytes:
    """Return a half message to be stored again, before its segment is deleted."""
    added = {
        names.CHECK_TIMES: str(checks),
        names.PREPARED_QUEUE_OFFSET: str(queue_offset_of(half)),
    }
    return rewritten(half, HALF_PLACE, without={name.encode() for name in added}, added=added)


def carried_parked(parked_message: bytes | memoryview) -> bytes:
    """Return a parked message to be stored again."""
    return rewritten(parked_message, PARKED_PLACE)


def op_message(half_queue_offset: int, *, now_ms: int, host: Host) -> bytes:
    """Return the op message that marks the half message at this queue offset as finished."""
    body = f"{half_queue_offset}{_OFFSET_SEPARATOR}".encode()
    return own_records(*OP_PLACE, host).encoded(body, _OP_PROPERTIES, now_ms)


def finished_offsets(body: bytes) -> list[int]:
    """Return the queue offsets of the half messages that an op message marks as finished."""
    parts = body.decode("ascii", "replace").split(_OFFSET_SEPARATOR)
    return [int(part) for part in parts if part.isdecimal() and part.isascii()]


def queue_offset_of(record: bytes | memoryview) -> int:
    """Return a stored record's offset in its queue."""
    (offset,) = _INT64.unpack_from(record, RecordLayout.QUEUE_OFFSET)
    return int(offset)


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) < 19 else 0
