"""Verify a producer's record before it enters the log.

A record must not enter the log if

* recovery would refuse it: sizes, magic, the body's CRC, the lengths of its parts;
* it sets fields that only the broker may set: transaction bits, reconsume times, prepared offset;
* it requests a delay, in a batch that may not (:mod:`.delayed_records`);
* it could not be named later: the rules for texts are those for messages in JSON
  (:mod:`..records.new_messages`).

Compiled code verifies records first (``native/records.c``). If it does not find a record plainly
valid, this module finds the fault, or finds that there is none. Where both can decide, they must
decide the same.

Source: RocketMQ 5.3, ``CommitLog.checkMessageAndReturnSize``, ``MessageExtEncoder``.
"""

from __future__ import annotations

import struct
from ctypes import addressof
from functools import lru_cache
from typing import Final, NamedTuple

from isal import isal_zlib

from eruca.contract.errors import MalformedBatchError, TooLargeError, ValidationError
from eruca.contract.errors.shown import shown
from eruca.contract.limits import BODY_SIZE_MAX, KEY_SIZE_MAX, PROPERTIES_SIZE_MAX
from eruca.contract.properties import (
    KEYS,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    TAGS,
    UNIQ_KEY,
    decode_properties,
    split_keys,
)
from eruca.contract.records import (
    BODY_CRC_MASK,
    CHECKSUM_ROOM,
    CHECKSUM_SIZE,
    COMPRESSION_MASK,
    HOST_BITS,
    MAGIC_V1,
    RecordLayout,
    SysFlag,
    layout_of,
)
from eruca_broker.core.batches.delayed_records import SUSPICIOUS, refuse_delayed
from eruca_broker.core.native.library import CRC32_AT, ExpectedRecord
from eruca_broker.core.properties.found import prefix_hash
from eruca_broker.core.records.times import TIMESTAMP_MAX

_SYS_FLAGS_REFUSED: Final = ~(int(SysFlag.COMPRESSED) | COMPRESSION_MASK | HOST_BITS)
_PROPERTIES_HEAD_SIZE: Final = 2  # bytes of the properties' length

WRONG_SUM: Final = "the sizes do not add up to the records"
_WRONG_PARTS: Final = "its parts do not add up to its size"
_CHECKSUM_ROOM: Final = CHECKSUM_ROOM.encode()
_STORED_PROPERTIES_SIZE_MAX: Final = PROPERTIES_SIZE_MAX + CHECKSUM_SIZE

_UNIQUE_ID: Final = f"{UNIQ_KEY}{NAME_SEPARATOR}".encode()

_crc32 = isal_zlib.crc32  # about ten times zlib's speed at 1 KiB


class Expected(NamedTuple):
    """The fields that every record of a request must have."""

    topic: str
    topic_part: bytes  # with its length in front
    queue_id: int
    host_bits: int  # of the first record
    layout: RecordLayout
    fields: struct.Struct  # the header's fields that are verified
    size_min: int  # bytes of a record without body and properties
    record: ExpectedRecord  # the same for compiled functions
    at: int  # … and its address


@lru_cache(maxsize=1024)
def expected_of(topic: str, queue_id: int, host_bits: int) -> Expected:
    """Return the values that records for a queue must have; all have the first's *host_bits*."""
    layout = layout_of(host_bits)
    topic_part = bytes((len(topic),)) + topic.encode()
    born_pad, store_pad = layout.born_host_size, 8 + layout.store_host_size
    record = ExpectedRecord(
        topic=topic_part,
        crc32=CRC32_AT,
        born_timestamp_max=TIMESTAMP_MAX,
        topic_size=len(topic_part),
        body_at=layout.body,
        body_bytes_max=BODY_SIZE_MAX,
        properties_size_max=_STORED_PROPERTIES_SIZE_MAX,
        queue_id=queue_id,
        sys_flag_mask=_SYS_FLAGS_REFUSED & 0xFFFF_FFFF | HOST_BITS,
        sys_flag=host_bits,
        key_hash_start=prefix_hash(topic),
        key_size_max=KEY_SIZE_MAX,
    )
    return Expected(
        topic,
        topic_part,
        queue_id,
        host_bits,
        layout,
        struct.Struct(f">iIii20xiq{born_pad}x{store_pad}xiqi"),
        layout.body + len(topic_part) + _PROPERTIES_HEAD_SIZE,
        record,
        addressof(record),
    )


def prove_record(
    buffer: bytearray,
    position: int,
    index: int,
    size: int,
    expected: Expected,
    *,
    may_be_delayed: bool = False,
) -> bytes:
    """Verify one record, of which *size* bytes are available; return its properties.

    Args:
        buffer: The bytes that contain it.
        position: Its first byte.
        index: Its number in the batch, for errors.
        size: Bytes of it.
        expected: The values that it must have.
        may_be_delayed: Whether it may request a delivery time.

    Raises:
        MalformedBatchError: The record is invalid.
        TooLargeError: Its body exceeds the limit.
        ValidationError: A property contains U+0000, or its unique id cannot be named.
    """
    if size < expected.size_min:
        raise _fault(index, f"expected at least {expected.size_min} bytes, found {size}")
    fields = expected.fields.unpack_from(buffer, position)
    total, magic, crc, queue_id, sys_flag, born, reconsumed, prepared, body_size = fields
    properties_size = size - expected.size_min - body_size
    if (
        total != size
        or magic != MAGIC_V1
        or queue_id != expected.queue_id
        or sys_flag & _SYS_FLAGS_REFUSED
        or sys_flag & HOST_BITS != expected.host_bits
        or not 0 <= born <= TIMESTAMP_MAX
        or reconsumed
        or prepared
        or not 0 < body_size <= BODY_SIZE_MAX
        or not 0 <= properties_size <= _STORED_PROPERTIES_SIZE_MAX
    ):
        raise _header_fault(index, size, fields, expected)
    end = position + size
    topic_at = position + expected.layout.body + body_size
    if not buffer.startswith(expected.topic_part, topic_at):
        raise _fault(index, f"its topic is not {expected.topic!r}, the topic of the request")
    properties_at = end - properties_size
    if buffer[properties_at - 2] << 8 | buffer[properties_at - 1] != properties_size:
        raise _fault(index, _WRONG_PARTS)
    properties = bytes(buffer[properties_at:end])
    if not properties.endswith(_CHECKSUM_ROOM):
        raise MalformedBatchError(
            f"record {index}: its properties do not end in the room for its checksum",
            fix=f"end the properties of every record with {CHECKSUM_ROOM!r}",
        )
    if not may_be_delayed and SUSPICIOUS in properties:
        refuse_delayed(properties, index)
    if properties_size > KEY_SIZE_MAX:
        _refuse_long_keys(properties, index)
    if _crc32(buffer[topic_at - body_size : topic_at]) & BODY_CRC_MASK != crc:
        raise _fault(index, "its body does not match its CRC")
    if b"\0" in properties:
        raise _fault_of_zero(properties, index)
    if _UNIQUE_ID in properties:
        _check_unique_id(properties, index)
    return properties


def _fault_of_zero(properties: bytes, index: int) -> ValidationError:
    """Return the error for properties that contain U+0000."""
    separator = PROPERTY_SEPARATOR.encode()
    part = next(part for part in properties.split(separator) if b"\0" in part)
    name = part.split(NAME_SEPARATOR.encode())[0].decode("utf-8", "replace")
    return ValidationError.at(
        f"/body/records/{index}/properties",
        f"{shown(name)!r}: a property's name or value must not contain U+0000",
        fix="remove that character, or put the value into the body",
    )


def _check_unique_id(properties: bytes, index: int) -> None:
    """Refuse a unique id that cannot occur in a URL's path; see ``new_messages``."""
    unique_id = decode_properties(properties.decode("utf-8", "replace")).get(UNIQ_KEY)
    if unique_id is None:
        return
    complaint = None
    if unique_id.split() != [unique_id]:
        complaint = "it contains a blank"
    elif not unique_id.strip("."):
        complaint = "it consists of dots"
    if complaint is not None:
        raise ValidationError.at(
            f"/body/records/{index}/properties/{UNIQ_KEY}",
            f"{complaint}, so no URL could name the message",
            fix="use letters and digits in each message's id, or omit the id",
        )


def _refuse_long_keys(properties: bytes, index: int) -> None:
    """Raise MalformedBatchError if a key or the tag is too long to be searched for."""
    found = decode_properties(properties.decode("utf-8", "replace"))
    words = [*split_keys(found.get(KEYS)), found.get(TAGS, "")]
    longest = max(map(len, words))
    if longest > KEY_SIZE_MAX:
        raise _fault(
            index,
            f"a key or tag has {longest} characters; the maximum is {KEY_SIZE_MAX}",
        )


def _fault(index: int, complaint: str) -> MalformedBatchError:
    return MalformedBatchError(f"record {index}: {complaint}")


def _body_size_fault(index: int, size: int) -> MalformedBatchError | TooLargeError:
    if size > BODY_SIZE_MAX:
        return TooLargeError(
            f"record {index}: its body of {size} bytes exceeds the limit of {BODY_SIZE_MAX}"
        )
    return _fault(index, f"its body has {size} bytes; the minimum is 1")


def _header_fault(
    index: int, size: int, fields: tuple[int, ...], expected: Expected
) -> MalformedBatchError | TooLargeError:
    total, magic, _, queue_id, sys_flag, born, reconsumed, prepared, body_size = fields
    if total != size or magic != MAGIC_V1:
        return _fault(index, "its size or magic differs from the preamble")
    if queue_id != expected.queue_id:
        return _fault(index, f"expected queue {expected.queue_id}, found {queue_id}")
    if sys_flag & _SYS_FLAGS_REFUSED or sys_flag & HOST_BITS != expected.host_bits:
        return _fault(index, "its sys flag is not allowed here")
    if not 0 <= born <= TIMESTAMP_MAX:
        return _fault(index, f"its born timestamp {born} is out of range")
    if reconsumed or prepared:
        return _fault(index, "reconsume times and prepared offset must be 0: the broker sets them")
    if not 0 < body_size <= BODY_SIZE_MAX:
        return _body_size_fault(index, body_size)
    return _fault(index, _WRONG_PARTS)
