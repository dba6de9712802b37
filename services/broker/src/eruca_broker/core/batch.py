"""A batch of records on its way into the log: checked whole, then stamped, never half.

The producer has laid the records out as the log stores them and left the broker's fields zero
(``eruca.contract.wire``). :func:`check_batch` proves that every byte is where it must be, so that
nothing that recovery would refuse can enter the log; :meth:`Batch.stamp` then writes queue
offsets, log offsets, store time and hosts into the very buffer that is written to disk.

Both come in two forms with one meaning: a loop over the records, and numpy over all of them. The
loop wins below about 64 messages, where numpy's fixed cost per call is the larger.

Source: RocketMQ 5.3, ``MessageExtEncoder``, ``CommitLog.DefaultAppendMessageCallback``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from eruca.contract.errors import MalformedBatchError, TooLargeError
from eruca.contract.limits import BODY_SIZE_MAX, PROPERTIES_SIZE_MAX
from eruca.contract.records import (
    BODY_CRC_MASK,
    COMPRESSION_MASK,
    HOST_BITS,
    MAGIC_V1,
    V1_TOPIC_SIZE_MAX,
    Host,
    RecordLayout,
    SysFlag,
    layout_of,
)
from eruca.contract.wire import BATCH_PREAMBLE, MalformedRecordsError, batch_extent, batch_sizes

Int64Array: TypeAlias = NDArray[np.int64]

NUMPY_COUNT_MIN: Final = 64  # messages from which numpy is faster than the loop; measured
_SLACK: Final = bytes(8)  # behind the records, so that eight bytes can be read at any of theirs
_STORE_HOST_V6: Final = int(SysFlag.STORE_HOST_V6)  # the enum's own operators cost a microsecond
_SYS_FLAGS_ALLOWED: Final = int(SysFlag.COMPRESSED) | COMPRESSION_MASK | HOST_BITS
_TIMESTAMP_MAX: Final = 253_402_300_799_999  # ms; the last of year 9999, what RFC 3339 can say
_WRONG_HEAD: Final = "its size or magic is not what the preamble says"
_WRONG_FLAG: Final = "its sys flag is not allowed here"
_NO_DATE: Final = "its born timestamp is no date"
_BROKERS_FIELDS: Final = "reconsume times and prepared offset are the broker's: leave them 0"
_WRONG_PARTS: Final = "its parts do not add up to its size"
_ENDS_IN_ZERO: Final = "its properties end in U+0000, as only a torn record's do"
_WRONG_CRC: Final = "its body does not match its CRC"

_STAMP_OFFSETS: Final = struct.Struct(">qq")
_TIMESTAMP: Final = struct.Struct(">q")

_crc32 = zlib_ng.crc32  # about ten times zlib's speed at 1 KiB


class Batch:
    """Whole, checked records for one queue; the broker's fields are still to be stamped.

    ``buffer[start : start + size]`` holds the records back to back; ``starts`` and ``sizes`` say
    where each lies, counted from the first one.
    """

    __slots__ = (
        "buffer",
        "count",
        "layout",
        "queue_id",
        "size",
        "sizes",
        "start",
        "starts",
        "topic",
    )

    def __init__(
        self,
        *,
        topic: str,
        queue_id: int,
        buffer: bytearray,
        start: int,
        sizes: Sequence[int] | Int64Array,
        layout: RecordLayout,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.buffer = buffer
        self.start = start
        self.count = len(sizes)
        self.layout = layout
        self.sizes = sizes
        self.starts: Sequence[int] | Int64Array
        if isinstance(sizes, np.ndarray):
            self.starts = np.cumsum(sizes) - sizes
            self.size = int(sizes.sum())
        else:
            self.starts = list(accumulate(sizes[:-1], initial=0))
            self.size = sum(sizes)

    @property
    def records(self) -> memoryview:
        """The records' bytes, as they go into the log."""
        return memoryview(self.buffer)[self.start : self.start + self.size]

    def stamp(
        self,
        *,
        queue_offset: int,
        log_offset: int,
        store_timestamp: int,
        store_host: Host,
        born_host: Host | None,
    ) -> None:
        """Write the broker's fields into every record.

        Args:
            queue_offset: The first message's; the others follow without a gap.
            log_offset: Where the first record goes.
            store_timestamp: ms since the epoch; the same for all of them.
            store_host: The broker's; of the family the layout has room for.
            born_host: The peer's. Left out where it is None or of the other family.
        """
        layout = self.layout
        store_bytes = _host_bytes(store_host)
        assert len(store_bytes) == layout.store_host_size
        born_bytes = _host_bytes(born_host) if born_host is not None else b""
        if len(born_bytes) != layout.born_host_size:
            born_bytes = b""
        if isinstance(self.starts, np.ndarray):
            positions = self.starts + self.start
            words = _words(self.buffer)
            words[positions + RecordLayout.QUEUE_OFFSET] = np.arange(
                queue_offset, queue_offset + self.count
            )
            words[positions + RecordLayout.LOG_OFFSET] = self.starts + log_offset
            words[positions + layout.store_timestamp] = store_timestamp
            _scatter_bytes(self.buffer, positions + layout.store_host, store_bytes)
            if born_bytes:
                _scatter_bytes(self.buffer, positions + RecordLayout.BORN_HOST, born_bytes)
            return
        tail = _TIMESTAMP.pack(store_timestamp) + store_bytes
        buffer = self.buffer
        for index, start in enumerate(self.starts):
            position = self.start + start
            _STAMP_OFFSETS.pack_into(
                buffer,
                position + RecordLayout.QUEUE_OFFSET,
                queue_offset + index,
                log_offset + start,
            )
            stamped = position + layout.store_timestamp
            buffer[stamped : stamped + len(tail)] = tail
            if born_bytes:
                born = position + RecordLayout.BORN_HOST
                buffer[born : born + len(born_bytes)] = born_bytes


def check_batch(chunks: Iterable[bytes], *, topic: str, queue_id: int, store_host: Host) -> Batch:
    """Return the batch in a request's body, given in the pieces it arrived in.

    Raises:
        MalformedBatchError: A size, magic, CRC, topic, queue or flag is wrong, or the parts of a
            record do not add up. Nothing has been changed.
        TooLargeError: A body or the properties of a message exceed their limit.
    """
    if len(topic) > V1_TOPIC_SIZE_MAX:
        raise MalformedBatchError(
            f"records of topics longer than {V1_TOPIC_SIZE_MAX} characters are the broker's own"
        )
    buffer = bytearray().join((*chunks, _SLACK))
    try:
        body = memoryview(buffer)[: -len(_SLACK)]
        count, start = batch_extent(body)
        body.release()
    except MalformedRecordsError as error:
        raise MalformedBatchError(str(error)) from error
    (sys_flag,) = struct.unpack_from(">i", buffer, start + RecordLayout.SYS_FLAG)
    layout = _checked_layout(sys_flag, store_host)
    topic_part = bytes((len(topic),)) + topic.encode()
    expected = _Expected(topic, topic_part, queue_id, sys_flag, layout)
    sizes: Sequence[int] | Int64Array
    if count >= NUMPY_COUNT_MIN:
        column = np.frombuffer(buffer, ">u4", count, BATCH_PREAMBLE.size).astype(np.int64)
        sizes = _check_columns(buffer, start, column, expected)
    else:
        sizes = _check_each(buffer, start, batch_sizes(buffer, count), expected)
    return Batch(
        topic=topic, queue_id=queue_id, buffer=buffer, start=start, sizes=sizes, layout=layout
    )


def batch_of_records(topic: str, queue_id: int, records: Sequence[bytes]) -> Batch:
    """Return the batch of *records* that this broker has encoded itself, which are sound."""
    (sys_flag,) = struct.unpack_from(">i", records[0], RecordLayout.SYS_FLAG)
    sizes: Sequence[int] | Int64Array = list(map(len, records))
    if len(records) >= NUMPY_COUNT_MIN:
        sizes = np.array(sizes, dtype=np.int64)
    return Batch(
        topic=topic,
        queue_id=queue_id,
        buffer=bytearray().join((*records, _SLACK)),
        start=0,
        sizes=sizes,
        layout=layout_of(sys_flag),
    )


class _Expected(NamedTuple):
    """What every record of a request must say."""

    topic: str
    topic_part: bytes  # with its length in front
    queue_id: int
    sys_flag: int  # the first record's; all have its host bits
    layout: RecordLayout

    @property
    def size_min(self) -> int:
        """Bytes of a record without body and properties; reads below it would leave the record."""
        return self.layout.body + len(self.topic_part) + 2


def _check_each(
    buffer: bytearray, start: int, sizes: Sequence[int], expected: _Expected
) -> Sequence[int]:
    if start + sum(sizes) != len(buffer) - len(_SLACK):
        raise MalformedBatchError("the sizes do not add up to the records")
    position = start
    for index, size in enumerate(sizes):
        if size < expected.size_min:
            raise _fault(index, f"{size} bytes are too few")
        fields = expected.layout.header.unpack_from(buffer, position)
        _check_header(index, size, fields, expected)
        _check_parts(index, buffer, position, size, fields, expected)
        position += size
    return sizes


def _check_header(index: int, size: int, fields: tuple[Any, ...], expected: _Expected) -> None:
    if fields[0] != size or fields[1] != MAGIC_V1:
        raise _fault(index, _WRONG_HEAD)
    if fields[3] != expected.queue_id:
        raise _fault(index, f"its queue is not {expected.queue_id}")
    if fields[7] & ~_SYS_FLAGS_ALLOWED or (fields[7] ^ expected.sys_flag) & HOST_BITS:
        raise _fault(index, _WRONG_FLAG)
    if not 0 <= fields[8] <= _TIMESTAMP_MAX:
        raise _fault(index, _NO_DATE)
    if fields[14] or fields[15]:
        raise _fault(index, _BROKERS_FIELDS)
    if not 0 < fields[16] <= BODY_SIZE_MAX:
        raise _body_size_fault(index, fields[16])


def _check_parts(  # noqa: PLR0917 - a record is an index, a buffer, a place and a size
    index: int,
    buffer: bytearray,
    position: int,
    size: int,
    fields: tuple[Any, ...],
    expected: _Expected,
) -> None:
    body_start = position + expected.layout.body
    body_end = body_start + fields[16]
    topic_end = body_end + len(expected.topic_part)
    record_end = position + size
    if topic_end + 2 > record_end:
        raise _fault(index, _WRONG_PARTS)
    if buffer[body_end:topic_end] != expected.topic_part:
        raise _fault(index, f"its topic is not the request's, {expected.topic!r}")
    properties_size = buffer[topic_end] << 8 | buffer[topic_end + 1]
    if properties_size > PROPERTIES_SIZE_MAX or topic_end + 2 + properties_size != record_end:
        raise _fault(index, _WRONG_PARTS)
    if properties_size and not buffer[record_end - 1]:
        raise _fault(index, _ENDS_IN_ZERO)
    if _crc32(buffer[body_start:body_end]) & BODY_CRC_MASK != fields[2]:
        raise _fault(index, _WRONG_CRC)


def _check_columns(
    buffer: bytearray, start: int, sizes: Int64Array, expected: _Expected
) -> Int64Array:
    total = len(buffer) - len(_SLACK)
    if int(sizes.sum()) != total - start or int(sizes.min()) < expected.size_min:
        raise MalformedBatchError("the sizes do not add up to the records")
    layout, topic_part = expected.layout, expected.topic_part
    positions = np.cumsum(sizes) - sizes + start
    words, halves = _words(buffer), _half_words(buffer)
    _require(words[positions] == (sizes << 32 | MAGIC_V1), _WRONG_HEAD)
    _require(
        halves[positions + RecordLayout.QUEUE_ID] == expected.queue_id,
        f"its queue is not {expected.queue_id}",
    )
    flags = halves[positions + RecordLayout.SYS_FLAG]
    wrong_bits = flags & ~_SYS_FLAGS_ALLOWED | (flags ^ expected.sys_flag) & HOST_BITS
    _require(wrong_bits == 0, _WRONG_FLAG)
    born = words[positions + RecordLayout.BORN_TIMESTAMP]
    _require((born >= 0) & (born <= _TIMESTAMP_MAX), _NO_DATE)
    reserved = (
        halves[positions + layout.reconsume_times] | words[positions + layout.prepared_offset]
    )
    _require(reserved == 0, _BROKERS_FIELDS)
    body_sizes = halves[positions + layout.body_size].astype(np.int64)
    fits = (body_sizes > 0) & (body_sizes <= BODY_SIZE_MAX)
    if not fits.all():
        index = int(np.argmin(fits))
        raise _body_size_fault(index, int(body_sizes[index]))
    room = sizes - (layout.body + len(topic_part) + 2)
    _require(body_sizes <= room, _WRONG_PARTS)
    body_ends = positions + layout.body + body_sizes
    # The properties' length, read as the last two bytes of four: it may lie at the very end.
    lengths_at = body_ends + len(topic_part) - 2
    properties_sizes = (halves[lengths_at] & 0xFFFF).astype(np.int64)
    _require(
        (properties_sizes <= PROPERTIES_SIZE_MAX) & (body_sizes + properties_sizes == room),
        _WRONG_PARTS,
    )
    last_bytes = halves[positions + sizes - 4] & 0xFF
    _require((last_bytes != 0) | (properties_sizes == 0), _ENDS_IN_ZERO)
    for offset in range(0, len(topic_part), 8):
        part = topic_part[offset : offset + 8]
        shift = 8 * (8 - len(part))
        found = words[body_ends + offset].astype(np.int64) >> shift
        wanted = int.from_bytes(part.ljust(8, b"\0"), "big", signed=True) >> shift
        _require(found == wanted, f"its topic is not the request's, {expected.topic!r}")
    view = memoryview(buffer)
    bodies = map(slice, (body_ends - body_sizes).tolist(), body_ends.tolist())
    crcs = np.fromiter(map(_crc32, map(view.__getitem__, bodies)), np.int64, len(sizes))
    _require(crcs & BODY_CRC_MASK == halves[positions + 8], _WRONG_CRC)
    return sizes


def _checked_layout(sys_flag: int, store_host: Host) -> RecordLayout:
    if bool(sys_flag & _STORE_HOST_V6) != store_host.is_v6:
        family = "IPv6" if store_host.is_v6 else "IPv4"
        raise MalformedBatchError(
            f"the records leave no room for this broker's {family} store host",
            fix="lay the records out for the store host that the topic's route names",
        )
    return layout_of(sys_flag)


def _require(holds: NDArray[np.bool_], complaint: str) -> None:
    if not holds.all():
        raise _fault(int(np.argmin(holds)), complaint)


def _fault(index: int, complaint: str) -> MalformedBatchError:
    return MalformedBatchError(f"record {index}: {complaint}")


def _body_size_fault(index: int, size: int) -> MalformedBatchError | TooLargeError:
    if size > BODY_SIZE_MAX:
        return TooLargeError(
            f"record {index}: its body of {size} bytes exceeds the limit of {BODY_SIZE_MAX}"
        )
    return _fault(index, f"its body has {size} bytes; a message has at least one")


@lru_cache(maxsize=4096)
def _host_bytes(host: Host) -> bytes:
    return host.encode()


def _words(buffer: bytearray) -> NDArray[Any]:
    """Return eight bytes from each position of *buffer*, as big-endian signed numbers."""
    return np.ndarray((len(buffer) - 7,), ">i8", buffer, strides=(1,))


def _half_words(buffer: bytearray) -> NDArray[Any]:
    """Return four bytes from each position of *buffer*, as big-endian signed numbers."""
    return np.ndarray((len(buffer) - 3,), ">i4", buffer, strides=(1,))


def _scatter_bytes(buffer: bytearray, positions: Int64Array, value: bytes) -> None:
    for offset in range(0, len(value), 4):
        (part,) = struct.unpack_from(">i", value, offset)
        _half_words(buffer)[positions + offset] = part
