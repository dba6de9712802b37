"""RocketMQ's own notes on its timer topic, written so that RocketMQ continues where Eruca stopped.

RocketMQ reads the timer topic once, from a queue offset that it keeps in ``config/timercheck``. It
puts each message into a wheel of seconds and appends a note to ``timerlog/``. It restores the wheel
from these notes. So two things tell it exactly which messages are pending: a timer log that lists
them, and a checkpoint behind the whole queue.

A unit of the timer log, big-endian, 52 bytes::

    size         i32
    previous     i64  position of the preceding unit that is due in the same second, or -1
    magic        i32
    written at   i64  ms since the epoch
    delay        i32  ms from then
    log offset   i64  of the message
    record size  i32  bytes
    topic hash   i32
    reserved     i64

RocketMQ looks up the queue offset of the last unit's message, and continues to read behind it. If
the queue's last message has ended, a unit marked as a deletion names it; that delivers nothing.

Source: RocketMQ 5.3, ``TimerMessageStore``, ``TimerLog``, ``TimerWheel``, ``TimerCheckpoint``.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from eruca.core.messages.record_columns import Int64Array

FILE_SIZE: Final = 100 * 1024 * 1024  # mappedFileSizeTimerLog: a file of another size is refused
PRECISION_MS: Final = 1_000  # timerPrecisionMs
ROLL_WINDOW_MS: Final = 172_800 * PRECISION_MS  # timerRollWindowSlot
CHECKPOINT_SIZE: Final = 4_096  # RocketMQ maps a page of the file

_UNIT: Final = np.dtype(
    [
        ("size", ">i4"),
        ("previous", ">i8"),
        ("magic", ">i4"),
        ("written_at", ">i8"),
        ("delay", ">i4"),
        ("log_offset", ">i8"),
        ("record_size", ">i4"),
        ("topic_hash", ">i4"),  # for RocketMQ's statistics by topic
        ("reserved", ">i8"),
    ]
)
_BLANK: Final = struct.Struct(">iqi")  # ends a file that is followed by another one
_BLANK_MAGIC: Final = -875_286_124
_DEFAULT: Final = 1
_ROLL: Final = 2  # RocketMQ stores it again when its slot comes, because it waits longer
_DELETE: Final = 4
_CHECKPOINT: Final = struct.Struct(">7q")


def timer_checkpoint(queue_offset: int, now_ms: int) -> bytes:
    """Return ``config/timercheck``: RocketMQ reads the timer topic from *queue_offset* on.

    It reads a wheel, if there is one, from *now_ms* on.
    """
    read_at_ms = now_ms // PRECISION_MS * PRECISION_MS
    fields = (read_at_ms, 0, queue_offset, queue_offset, 0, now_ms, 0)
    return _CHECKPOINT.pack(*fields).ljust(CHECKPOINT_SIZE, b"\0")


def timer_log(
    due_ms: Int64Array,
    log_offsets: Int64Array,
    sizes: Int64Array,
    *,
    is_last_pending: bool,
    now_ms: int,
    file_size: int = FILE_SIZE,
) -> list[bytes]:
    """Return the contents of the timer log's files, each without the zeros that fill it.

    Args:
        due_ms: The time at which each message is due, in the order of the queue.
        log_offsets: Log offset of each message.
        sizes: Bytes of each record.
        is_last_pending: Whether the last one, the queue's last, is pending, as all others are.
        now_ms: Messages that are overdue at this time are delivered at once.
        file_size: Bytes.
    """
    written_at = now_ms // PRECISION_MS * PRECISION_MS
    slots = np.maximum(due_ms // PRECISION_MS * PRECISION_MS, written_at)
    waits = slots - written_at
    is_rolled = waits >= ROLL_WINDOW_MS
    is_nearly_due = waits - ROLL_WINDOW_MS < ROLL_WINDOW_MS // 3  # leaves the next turn some time
    rolled = np.where(is_nearly_due, ROLL_WINDOW_MS // 2, ROLL_WINDOW_MS)
    units = np.zeros(len(due_ms), _UNIT)
    units["size"] = _UNIT.itemsize
    units["magic"] = np.where(is_rolled, _DEFAULT | _ROLL, _DEFAULT)
    units["written_at"] = written_at
    delays = np.where(is_rolled, rolled, waits)
    if not is_last_pending:
        units["magic"][-1] = _DEFAULT | _DELETE
        delays[-1] = -PRECISION_MS  # a past second: its slot is never read
    units["delay"] = delays
    units["log_offset"] = log_offsets
    units["record_size"] = sizes
    per_file = (file_size - _BLANK.size) // _UNIT.itemsize
    numbers = np.arange(len(units), dtype=np.int64)
    places = numbers // per_file * file_size + numbers % per_file * _UNIT.itemsize
    units["previous"] = _previous(delays, places)
    return [
        _file(units[i : i + per_file], i + per_file < len(units), file_size)
        for i in range(0, len(units), per_file)
    ]


def _previous(delays: Int64Array, places: Int64Array) -> Int64Array:
    """Return, for each unit, the position of the preceding one with the same slot, or -1."""
    order = np.argsort(delays, kind="stable")
    has_previous = delays[order][1:] == delays[order][:-1]
    previous = np.full(len(delays), -1, np.int64)
    previous[order[1:][has_previous]] = places[order[:-1][has_previous]]
    return previous


def _file(units: np.ndarray, is_followed: bool, file_size: int) -> bytes:  # noqa: FBT001
    content = units.tobytes()
    if is_followed:
        content += _BLANK.pack(file_size - len(content), 0, _BLANK_MAGIC)
    return content
