"""Half messages as records: how one waits for its decision, and what it becomes.

A half message is a whole record of the half topic, with its real topic and queue among its
properties. Committing appends it again where it belongs, with the flag of a commit and the half
message's place; parking and carrying forward append it again, too. Body, CRC, born time and host
stay as they are, so nothing is decoded that is only passed on.

That a half message needs no more looking at, an **op message** says: of the op topic, with the tag
``d``, whose body is the half message's queue offset. A RocketMQ broker that opens the store reads
both topics as its own.

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
    Record,
    RecordLayout,
    SysFlag,
    encode_unstamped,
    layout_of,
)
from eruca.core.messages.delay_levels import TIMER_UNITS
from eruca_broker.core.batches.record_proof import TIMESTAMP_MAX
from eruca_broker.core.records.scheduled import (
    WAITING_NAMES,
    Destination,
    PropertiesTooLargeError,
    Wait,
    properties_of,
    property_of,
    rewritten,
    sys_flag_of,
    waiting,
)

HALF_PLACE: Final = Destination(HALF_TOPIC, 0)
OP_PLACE: Final = Destination(OP_HALF_TOPIC, 0)
PARKED_PLACE: Final = Destination(CHECK_MAX_TOPIC, 0)
OP_TAG: Final = "d"
_OFFSET_SEPARATOR: Final = ","
_PROPERTIES_RESERVE: Final = 128  # bytes for what parking and carrying add
_STEP_SIZE_MAX: Final = 10 * 1024  # bytes a later step takes beside the message: reasons are long
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
_INT64: Final = struct.Struct(">q")


def half_message(
    raw: bytes,
    destination: Destination,
    *,
    transaction_id: str,
    producer_group: str,
    immunity_seconds: float | None = None,
    delay: dict[str, str] | None = None,
) -> bytes:
    """Return the record *raw* as it waits for the decision whether it goes to *destination*.

    Args:
        raw: A sound record.
        destination: Where it goes if it is committed.
        transaction_id: Its unique id.
        producer_group: Whom to ask.
        immunity_seconds: No check before; RocketMQ knows whole seconds.
        delay: What :func:`delay_properties` says.

    Raises:
        PropertiesTooLargeError: Its properties leave no room for what waiting needs.
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
    half = rewritten(raw, HALF_PLACE, added=added | (delay or {}))
    size = len(properties_of(half)) - CHECKSUM_SIZE + _PROPERTIES_RESERVE
    if size > PROPERTIES_SIZE_MAX:
        raise PropertiesTooLargeError(
            f"the properties of its half message take {size} bytes, more than {PROPERTIES_SIZE_MAX}"
        )
    return _with_sys_flag(half, sys_flag_of(half) & ~SysFlag.ROLLBACK)  # or no queue has it


def half_size_max(segment_size: int) -> int:
    """Return how large a half message may be: each later step has to fit into one segment."""
    return segment_size - BLANK_SIZE_MIN - _STEP_SIZE_MAX


def delay_properties(
    *, level: int | None, delay_ms: int | None, deliver_at_ms: int | None
) -> dict[str, str]:
    """Return how a half message says that it is to be delayed when it is committed."""
    said = {
        names.DELAY: level,
        names.TIMER_DELAY_MS: delay_ms,
        names.TIMER_DELIVER_MS: deliver_at_ms,
    }
    return {name: str(value) for name, value in said.items() if value is not None}


def said_properties(text: str) -> dict[str, str]:
    """Return those of a half message's properties that its sender has said.

    But for its id, and in which trace it was sent.
    """
    return {
        name: value
        for name, value in names.decode_properties(text).items()
        if name in _SAID_NAMES or name not in names.RESERVED | names.TRACE_CONTEXT
    }


def wait_of(half: bytes | memoryview, now_ms: int) -> Wait | None:
    """Return how long a half message that is committed now is delayed; None: not at all.

    What several properties say differently is as RocketMQ takes it: see
    :mod:`eruca.core.messages.delay_levels`. A time that cannot be read, which RocketMQ would not
    have stored, delays nothing.
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
    final = bytearray(rewritten(half, destination, without=_HALF_NAMES))
    sys_flag = sys_flag_of(final) & ~SysFlag.ROLLBACK | SysFlag.COMMIT
    at = RecordLayout.SYS_FLAG
    final[at : at + 4] = sys_flag.to_bytes(4, "big", signed=True)
    _INT64.pack_into(final, layout_of(sys_flag).prepared_offset, half_log_offset)
    return bytes(final) if wait is None else waiting(bytes(final), wait, destination)


def parked(half: bytes | memoryview, checks: int) -> bytes:
    """Return a half message as an operator finds it."""
    return rewritten(
        half,
        PARKED_PLACE,
        without={names.CHECK_TIMES.encode()},
        added={names.CHECK_TIMES: str(checks)},
    )


def carried(half: bytes | memoryview, checks: int) -> bytes:
    """Return a half message to be stored again, before it is deleted where it lies."""
    added = {
        names.CHECK_TIMES: str(checks),
        names.PREPARED_QUEUE_OFFSET: str(queue_offset_of(half)),
    }
    return rewritten(half, HALF_PLACE, without={name.encode() for name in added}, added=added)


def carried_parked(parked_message: bytes | memoryview) -> bytes:
    """Return a parked message to be stored again."""
    return rewritten(parked_message, PARKED_PLACE)


def op_message(half_queue_offset: int, *, now_ms: int, host: Host) -> bytes:
    """Return the op message that says that the half message at this queue offset is done with."""
    return encode_unstamped(
        Record(
            topic=OP_PLACE.topic,
            queue_id=OP_PLACE.queue_id,
            body=f"{half_queue_offset}{_OFFSET_SEPARATOR}".encode(),
            born_timestamp=now_ms,
            born_host=host,
            store_host=host,
            properties=names.encode_properties({names.TAGS: OP_TAG}),
        )
    )


def finished_offsets(body: bytes) -> list[int]:
    """Return the queue offsets of the half messages that an op message says are done with."""
    parts = body.decode("ascii", "replace").split(_OFFSET_SEPARATOR)
    return [int(part) for part in parts if part.isdecimal() and part.isascii()]


def queue_offset_of(record: bytes | memoryview) -> int:
    """Return a stored record's offset in its queue."""
    (offset,) = _INT64.unpack_from(record, RecordLayout.QUEUE_OFFSET)
    return int(offset)


def _with_sys_flag(record: bytes, sys_flag: int) -> bytes:
    at = RecordLayout.SYS_FLAG
    return record[:at] + sys_flag.to_bytes(4, "big", signed=True) + record[at + 4 :]


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) < 19 else 0
