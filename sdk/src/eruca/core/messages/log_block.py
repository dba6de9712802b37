"""A stretch of a broker's log from the log feed: consecutive records, decoded on access.

A :class:`LogBlock` is the whole stretch, for readers that process many records in one step. It
creates :class:`LogRecord` objects when it is iterated, and they are decoded at the first access to
a field.

Source: RocketMQ 5.3, ``CommitLog``; the feed is ours.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from eruca.contract.records import (
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    MAGIC_V1,
    RECORD_SIZE_MIN,
    Buffer,
    DamagedRecordError,
    Record,
    RecordLayout,
    decode_record,
    layout_of,
)

_SIZE_AND_MAGIC = struct.Struct(">iI")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
MAGIC_END: Final = 7  # index of the last byte of a record's magic, which distinguishes the versions


class LogRecord(Struct, gc=False, frozen=True):
    """A record of a broker's log, with its bytes."""

    broker_name: str
    log_offset: int
    size: int  # bytes
    _records: Buffer
    _start: int

    @property
    def next_offset(self) -> int:
        """The log offset after the record: store it when the record is processed."""
        return self.log_offset + self.size

    @property
    def raw(self) -> bytes:
        """Its bytes, as in the log."""
        return bytes(self._records[self._start : self._start + self.size])

    @property
    def topic(self) -> str:
        """The record's topic; cheaper than decoding the record.

        Raises:
            DamagedRecordError: The record is damaged.
        """
        try:
            return self._topic()
        except (struct.error, UnicodeDecodeError) as error:
            raise DamagedRecordError(f"its topic is unreadable: {error}") from error

    def _topic(self) -> str:
        start = self._start
        (flag,) = _I32.unpack_from(self._records, start + RecordLayout.SYS_FLAG)
        layout = layout_of(flag)
        (body_size,) = _I32.unpack_from(self._records, start + layout.body_size)
        at = start + layout.body + body_size
        head_size = 1 if self._records[start + MAGIC_END] == MAGIC_V1 & 0xFF else 2
        size = int.from_bytes(self._records[at : at + head_size], "big")
        if not start < at <= start + self.size - head_size - size:
            raise DamagedRecordError("its topic is outside the record")
        return str(self._records[at + head_size : at + head_size + size], "utf-8")

    def __repr__(self) -> str:
        return f"LogRecord({self.broker_name} at {self.log_offset}, {self.size} bytes)"

    def decode(self, *, check_crc: bool = True) -> Record:
        """Return its fields.

        Raises:
            DamagedRecordError: The record is damaged.
        """
        return decode_record(self._records, self._start, check_crc=check_crc)


class LogBlock(Struct, gc=False, frozen=True):
    """The content of one answer of a broker's log feed: complete records, in order.

    Records that the broker found damaged are excluded.
    """

    broker_name: str
    from_offset: int  # start of the read
    next_offset: int  # where to continue; everything before it is in this block or earlier ones
    end_offset: int  # the log's end at that time
    data: bytes  # the records
    damaged: Mapping[int, bytes] = {}  # the excluded records, as stored, by log offset
    epoch: int = 0  # of its records, to be stored with next_offset; 0: without replicas

    def records(self) -> Iterator[LogRecord]:
        """Yield its records, in order.

        Raises:
            DamagedRecordError: The bytes are not consecutive records.
        """
        return split_log_block(self.broker_name, self.data)

    def __repr__(self) -> str:
        return (
            f"LogBlock({self.broker_name} from {self.from_offset}, {len(self.data)} bytes, "
            f"next {self.next_offset} of {self.end_offset})"
        )


def sound_records(
    data: bytes, from_offset: int, damaged_offsets: str
) -> tuple[bytes, dict[int, bytes]]:
    """Return the undamaged records of an answer of the feed, and the damaged ones by log offset.

    Args:
        data: The answer's body.
        from_offset: Its log offset.
        damaged_offsets: The header DAMAGED_OFFSETS_HEADER; empty: all records are undamaged.

    Raises:
        ValueError: The header is invalid, or its offsets are not in the body.
    """
    if not damaged_offsets:
        return data, {}
    damaged: dict[int, bytes] = {}
    pieces, position = [], 0
    for log_offset in map(int, damaged_offsets.split(",")):
        start = log_offset - from_offset
        (size,) = _I32.unpack(data[start : start + _I32.size].ljust(_I32.size, b"\0"))
        if not position <= start or size < RECORD_SIZE_MIN:
            raise ValueError(f"no record starts at the log offset {log_offset} of the answer")
        pieces.append(data[position:start])
        position = start + size
        damaged[log_offset] = data[start:position]
    return b"".join((*pieces, data[position:])), damaged


def split_log_block(broker_name: str, block: Buffer) -> Iterator[LogRecord]:
    """Yield the records in *block*, in order, without the blanks at the ends of segments.

    Raises:
        DamagedRecordError: The bytes are not consecutive records.
    """
    position, end = 0, len(block)
    while position < end:
        if end - position < BLANK_SIZE_MIN:
            raise DamagedRecordError(f"{end - position} bytes are too few for a record")
        size, magic = _SIZE_AND_MAGIC.unpack_from(block, position)
        if magic == MAGIC_BLANK:
            return  # the rest of a segment, which the feed does not send
        if not RECORD_SIZE_MIN <= size <= end - position:
            raise DamagedRecordError(f"size {size} does not fit into the {end - position} bytes")
        (log_offset,) = _I64.unpack_from(block, position + RecordLayout.LOG_OFFSET)
        yield LogRecord(broker_name, log_offset, size, block, position)
        position += size
