"""Verify stored records before anything of them leaves the log.

A disk may return other bytes than were written, and anyone who can write to a file can change it.
So a record is verified when it is read, although it was verified when it arrived. A record is
*damaged* if

* its size, magic or parts do not add up; or
* it ends in a checksum that does not match, or that is damaged itself; or
* it has no checksum (RocketMQ wrote it), and its body does not match its CRC; or
* it names another place as its own: its log offset and, in a queue, topic, queue, offset.

A single changed byte of a record with a checksum is always detected. In a record without one,
changes in properties, times and hosts are not detected.

The loops are compiled (``native/stored.c``). ``decode_record`` then names the fault of a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_char, c_int64, c_uint8, c_uint32
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from eruca.contract.records import (
    RECORD_SIZE_MIN,
    DamagedRecordError,
    decode_record,
)
from eruca.core.messages.record_columns import Int64Array, LogBuffer
from eruca_broker.core.consume_queue_entry import ENTRY_SIZE
from eruca_broker.core.native.library import (
    CRC32_AT,
    QueuePlace,
    address_of_array,
    gather_records,
    prove_entries,
    prove_queued,
    prove_stored,
    whole_records,
)

WRONG_PLACE: Final = "it names another place as its own"
_ANY_ORDER: Final = -1
_COPIED_SIZE_MAX: Final = 64 * 1024  # bytes that are copied in less time than an address takes
_START: Final = c_int64(0)


def proved_rows(buffer: LogBuffer, starts: Int64Array, sizes: Int64Array) -> NDArray[np.bool_]:
    """Tell which records are valid, each by itself; their places are not checked.

    Args:
        buffer: The bytes that contain them.
        starts: Their first bytes, counted from the start of the buffer.
        sizes: Bytes of each; they are within the buffer.
    """
    sound = np.zeros(len(starts), np.uint8)
    prove_stored(
        address_of_array(np.frombuffer(buffer, np.uint8), np.uint8),
        *(address_of_array(starts, np.int64), address_of_array(sizes, np.int64)),
        *(len(starts), CRC32_AT, address_of_array(sound, np.uint8)),
    )
    return sound.view(np.bool_)


def sound_count(
    stretches: Sequence[tuple[int, memoryview]],
    sizes: bytes,
    *,
    topic: bytes,
    queue_id: int,
    queue_offset: int | None,
    gathered_from: Int64Array | None = None,
) -> int:
    """Return the number of leading records of a queue that are valid and in their place.

    Args:
        stretches: Records back to back, each stretch with the log offset at which it begins.
        sizes: u32 big-endian for each record, as in the consume queue.
        topic: The queue's.
        queue_id: Its number.
        queue_offset: The first one's, if the others follow it without a gap.
        gathered_from: The log offset of each record, if they are copies in one stretch.
    """
    assert gathered_from is None or len(stretches) == 1, "offsets count from the first stretch"
    first = _ANY_ORDER if queue_offset is None else queue_offset
    place = QueuePlace(topic, 0, first, len(topic), queue_id)
    sizes_at = address_of_array(np.frombuffer(sizes, np.uint8), np.uint8)
    gathered_at = None if gathered_from is None else address_of_array(gathered_from, np.int64)
    count = 0
    for log_offset, records in stretches:
        if len(records) < RECORD_SIZE_MIN:
            break
        place.log_offset = log_offset
        at = address_of_array(np.frombuffer(records, np.uint8), np.uint8)
        count += prove_queued(
            *(at, len(records), sizes_at + 4 * count, gathered_at, byref(place), CRC32_AT)
        )
        if place.log_offset != log_offset + len(records):
            break
    return count


def sizes_of_run(  # noqa: PLR0917 - it is called for each pull
    entries: bytes, at: int, size: int, topic: str, queue_id: int, queue_offset: int
) -> bytes | None:
    """Return the sizes of a queue's records that lie back to back, if all are valid.

    They are u32 big-endian, as on the wire. None if the records do not lie so, or one of them is
    not valid or not in its place: :func:`sound_count` says which.

    Args:
        entries: The queue's entries of them, without gaps.
        at: Memory address of the first record.
        size: Bytes of all of them.
        topic: The queue's.
        queue_id: Its number.
        queue_offset: The first one's.
    """
    count = len(entries) // ENTRY_SIZE
    sizes = bytearray(4 * count)
    place = _queue_place(topic, queue_id)
    into = byref(c_char.from_buffer(sizes))
    sound = prove_entries(entries, count, at, size, queue_offset, place, CRC32_AT, into)
    return bytes(sizes) if sound == count else None


@lru_cache(maxsize=1024)
def _queue_place(topic: str, queue_id: int) -> object:
    """Return the reference to a queue's place, which no function changes."""
    name = topic.encode()
    return byref(QueuePlace(name, 0, _ANY_ORDER, len(name), queue_id))


def gathered(buffer: LogBuffer, starts: Int64Array, sizes: Int64Array) -> memoryview:
    """Return copies of records, one after another. The caller may not change them.

    Args:
        buffer: The bytes that contain them.
        starts: Their first bytes, counted from the start of the buffer.
        sizes: Bytes of each; they are within the buffer.
    """
    copies = np.empty(int(sizes.sum()), np.uint8)
    gather_records(
        address_of_array(np.frombuffer(buffer, np.uint8), np.uint8),
        *(address_of_array(starts, np.int64), address_of_array(sizes, np.int64), len(starts)),
        address_of_array(copies, np.uint8),
    )
    return copies.data


def whole_size(records: memoryview, log_offset: int, bytes_max: int) -> tuple[int, bool]:
    """Return the bytes of the leading records up to *bytes_max*, and whether a further one follows.

    Only sizes and log offsets are checked. At least the first record is counted. If no further one
    follows, the bytes end there, or a blank record or damage comes next.

    Args:
        records: Records of one segment, back to back.
        log_offset: Log offset of the first one.
        bytes_max: Maximum bytes.
    """
    following = c_uint32()
    at = address_of_array(np.frombuffer(records, np.uint8), np.uint8)
    room = min(bytes_max, len(records))
    size = whole_records(at, len(records), log_offset, room, byref(following))
    return size, following.value > 0


def is_sound(raw: bytes | memoryview) -> bool:
    """Tell whether the record *raw*, which contains no other bytes, is valid."""
    size = len(raw)
    if size < RECORD_SIZE_MIN:
        return False
    if size > _COPIED_SIZE_MAX:
        return bool(proved_rows(raw, np.zeros(1, np.int64), np.array([size], np.int64))[0])
    sound = c_uint8()
    prove_stored(bytes(raw), byref(_START), byref(c_int64(size)), 1, CRC32_AT, byref(sound))
    return bool(sound.value)


def fault_of(raw: bytes | memoryview) -> str | None:
    """Return the fault of the record *raw*, which contains no other bytes; None if it is valid."""
    if is_sound(raw):
        return None
    try:
        record = decode_record(raw)
    except DamagedRecordError as error:
        return str(error)
    assert record.size < len(raw), "Python accepts a record that compiled code refuses"
    return f"expected {record.size} bytes by its size, found {len(raw)}"
