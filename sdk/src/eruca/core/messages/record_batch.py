"""Encode messages into wire batches, and decode pulled bytes: the two ends of the hot path.

``eruca.contract.wire`` describes a batch: a preamble, a column of sizes, and log records. The
records have zeros in the broker's fields, and room for their checksums at the end. There are two
ways to build the same bytes. Columns with numpy have a higher fixed cost and a lower cost per
message than a loop with structs. Both are equally fast at about 28 messages. Without numpy only the
loop is used. In most batches the messages differ only in body, key and id. Then the columns write
keys and ids into copies of the first message's properties.

A pull is decoded only as far as each record's start and queue offset; see
:class:`eruca.core.messages.received_message.ReceivedMessage`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from eruca.contract.properties import PROPERTY_SEPARATOR
from eruca.contract.records import (
    BODY_CRC_MASK,
    CHECKSUM_ROOM,
    CHECKSUM_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    NO_HOST,
    V1_TOPIC_SIZE_MAX,
    Buffer,
    RecordLayout,
    SysFlag,
    layout_of,
)
from eruca.contract.wire import BATCH_MAGIC, BATCH_PREAMBLE
from eruca.core.messages.accelerators import compress, crc32, optional_numpy
from eruca.core.messages.message import BEFORE_ID, Message
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage
from eruca.core.messages.unique_ids import COUNTER_DIGITS, UniqueIdRange

if TYPE_CHECKING:
    import numpy

_I64: Final = struct.Struct(">q")
COLUMNS_FROM: Final = 28  # messages from which columns are faster than the loop
COMPRESSION_LEVEL: Final = 5  # RocketMQ's
_COMPRESSED: Final = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
_NO_ADDRESS_V6: Final = bytes(16)


class EncodedBatch(NamedTuple):
    """A request body, and the size of each record in it."""

    body: bytes
    sizes: bytes  # the column as in the body: u32 each


def encode_messages(
    messages: Sequence[Message],
    message_ids: Sequence[str],
    *,
    queue_id: int,
    born_timestamp: int,
    store_host_v6: bool = False,
    compression_threshold_bytes: int | None = None,
) -> EncodedBatch:
    """Return the batch that stores *messages* of one topic, each under its id.

    Bodies of at least *compression_threshold_bytes* are compressed if that makes them smaller.
    """
    assert len(messages) == len(message_ids) > 0
    template = _Template(messages[0].topic, queue_id, born_timestamp, store_host_v6=store_host_v6)
    bodies = [message.body for message in messages]
    sys_flags: list[int] = []
    if compression_threshold_bytes is not None:
        sys_flags = _compress(bodies, compression_threshold_bytes)
        assert len(sys_flags) in (0, len(bodies)), "a body would be sent without its flag"
    if len(messages) < COLUMNS_FROM or optional_numpy() is None:
        return _encode_by_loop(template, messages, message_ids, bodies, sys_flags)
    return _encode_by_columns(template, messages, message_ids, bodies, sys_flags)


def _compress(bodies: list[bytes], threshold: int) -> list[int]:
    """Replace large bodies by smaller forms; return their flags, empty if none was replaced."""
    if max(map(len, bodies)) < threshold:
        return []
    sys_flags = [0] * len(bodies)
    for i, body in enumerate(bodies):
        if len(body) >= threshold:
            packed = compress(body, COMPRESSION_LEVEL)
            if len(packed) < len(body):
                bodies[i] = packed
                sys_flags[i] = _COMPRESSED
    return sys_flags


class _Template:
    """The fields that all records of a batch have in common."""

    def __init__(
        self, topic: str, queue_id: int, born_timestamp: int, *, store_host_v6: bool
    ) -> None:
        name = topic.encode()
        is_v2 = len(name) > V1_TOPIC_SIZE_MAX
        self.magic = MAGIC_V2 if is_v2 else MAGIC_V1
        self.topic = len(name).to_bytes(2 if is_v2 else 1, "big") + name
        self.queue_id = queue_id
        self.born_timestamp = born_timestamp
        self.host_flags = int(SysFlag.STORE_HOST_V6) if store_host_v6 else 0
        self.layout = layout_of(self.host_flags)
        self.store_address = _NO_ADDRESS_V6 if store_host_v6 else NO_HOST.address

    def header(
        self,
        size: int = 0,
        *,
        body_crc: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        body_size: int = 0,
    ) -> bytes:
        """Return a record's bytes up to its body."""
        return self.layout.header.pack(
            size,
            self.magic,
            body_crc,
            self.queue_id,
            flag,
            0,  # queue offset: the broker's
            0,  # log offset: the broker's
            self.host_flags | sys_flag,
            self.born_timestamp,
            NO_HOST.address,  # the broker stamps the peer's address
            0,
            0,  # store timestamp: the broker's
            self.store_address,
            0,
            0,  # not a retry
            0,  # not a half message
            body_size,
        )


def _encode_by_loop(
    template: _Template,
    messages: Sequence[Message],
    message_ids: Sequence[str],
    bodies: Sequence[bytes],
    sys_flags: Sequence[int],
) -> EncodedBatch:
    pieces = [b"", b""]
    sizes = []
    header, fixed_size = template.header, template.layout.body
    tails = _tails(template.topic, messages, message_ids)
    for message, body, tail, sys_flag in zip(
        messages, bodies, tails, sys_flags or repeat(0), strict=False
    ):
        body_size = len(body)
        size = fixed_size + body_size + len(tail)
        crc = crc32(body) & BODY_CRC_MASK
        sizes.append(size)
        pieces += (
            header(size, body_crc=crc, flag=message.flag, sys_flag=sys_flag, body_size=body_size),
            body,
            tail,
        )
    total = sum(sizes)
    pieces[0] = BATCH_PREAMBLE.pack(BATCH_MAGIC, len(sizes), total, 0)
    pieces[1] = column = struct.pack(f">{len(sizes)}I", *sizes)
    return _batch_of(pieces, column, total)


def _encode_by_columns(
    template: _Template,
    messages: Sequence[Message],
    message_ids: Sequence[str],
    bodies: Sequence[bytes],
    sys_flags: Sequence[int],
) -> EncodedBatch:
    import numpy  # late, as in optional_numpy, which has found it

    count = len(messages)
    body_sizes = numpy.fromiter(map(len, bodies), numpy.int64, count)
    tails: list[bytes] = []
    records = _alike_records(template, messages, message_ids)
    if records is not None:
        sizes = body_sizes + records.itemsize
    else:
        tails = _tails(template.topic, messages, message_ids)
        tail_sizes = numpy.fromiter(map(len, tails), numpy.int64, count)
        records = numpy.frombuffer(
            bytearray(template.header() * count), _record_fields(template.layout)
        )
        records["flag"] = [message.flag for message in messages]
        sizes = body_sizes + tail_sizes + template.layout.body
    records["size"] = sizes
    records["body_size"] = body_sizes
    records["body_crc"] = numpy.fromiter(map(crc32, bodies), numpy.int64, count) & BODY_CRC_MASK
    if sys_flags:
        records["sys_flag"] |= numpy.array(sys_flags, ">i4")
    total = int(sizes.sum())
    preamble = BATCH_PREAMBLE.pack(BATCH_MAGIC, count, total, 0)
    column = sizes.astype(">u4").tobytes()
    pieces = _interleaved(records, template.layout.body, bodies, tails)
    return _batch_of([preamble, column, *pieces], column, total)


def _batch_of(pieces: Sequence[bytes], column: bytes, total: int) -> EncodedBatch:
    """Return the batch of *pieces*; *total* is the sum of the sizes in its records."""
    body = b"".join(pieces)
    size = BATCH_PREAMBLE.size + len(column) + total
    assert len(body) == size, "a record's size differs from its bytes"
    return EncodedBatch(body, column)


def _interleaved(
    records: numpy.ndarray, head_size: int, bodies: Sequence[bytes], tails: Sequence[bytes]
) -> list[bytes]:
    """Return the parts of all records in order: bytes before a body, the body, bytes after it.

    If *tails* is empty, they are in *records*, each before the next record's head.
    """
    import numpy  # late, as in optional_numpy, which has found it

    count, row = len(bodies), f"V{records.itemsize}"
    if tails:
        pieces = [b""] * (3 * count)
        pieces[0::3] = records.view(row).tolist()
        pieces[1::3] = bodies
        pieces[2::3] = tails
        return pieces
    block = records.view(numpy.uint8)
    pieces = [b""] * (2 * count + 1)
    pieces[0] = block[:head_size].tobytes()
    pieces[1::2] = bodies
    pieces[2:-1:2] = block[head_size : head_size - records.itemsize].view(row).tolist()
    pieces[-1] = block[head_size - records.itemsize :].tobytes()
    return pieces


def _tails(topic: bytes, messages: Sequence[Message], message_ids: Sequence[str]) -> list[bytes]:
    """Return the bytes after each body: topic and properties, with their sizes."""
    tails = []
    before: dict[int, bytes] = {}  # properties of that size
    for message, message_id in zip(messages, message_ids, strict=True):
        properties = f"{message.properties_text(message_id)}{CHECKSUM_ROOM}".encode()
        size = len(properties)
        if size not in before:
            before[size] = topic + size.to_bytes(2, "big")
        tails.append(before[size] + properties)
    return tails


def _alike_records(
    template: _Template, messages: Sequence[Message], message_ids: Sequence[str]
) -> numpy.ndarray | None:
    """Return the records without bodies of plain messages that differ only in key and counter.

    This requires one tag, keys of one length or none, and ids of one range; otherwise it returns
    None. The first record is the pattern for all.
    """
    import numpy  # late, as in optional_numpy, which has found it

    unusual = [message for message in messages if message._text is not None]
    if unusual or not isinstance(message_ids, UniqueIdRange):
        return None
    keys = [key for message in messages for key in message.keys]
    key_size = len(keys[0]) if keys else 0
    # A blank after each key, and none within: so they end rows of one length.
    text = " ".join([*keys, ""])
    if (
        len({message.tag for message in messages}) > 1
        or len(keys) not in (0, len(messages))
        or len(text) != len(keys) * (key_size + 1)
        or text[key_size :: key_size + 1].strip(" ")
    ):
        return None
    (tail,) = _tails(template.topic, messages[:1], [message_ids[0]])
    records = numpy.frombuffer(
        bytearray((template.header() + tail) * len(messages)),
        _record_fields(template.layout, len(tail), len(message_ids.head), key_size),
    )
    records["counter"] = numpy.frombuffer(message_ids.digits.encode(), f"V{COUNTER_DIGITS}")
    if keys:
        records["key"] = numpy.frombuffer(text.encode(), f"V{key_size},V1")["f0"]
    return records


@lru_cache(maxsize=256)
def _record_fields(
    layout: RecordLayout, tail_size: int = 0, id_head_size: int = 0, key_size: int = 0
) -> numpy.dtype:
    """Return the fields that differ: of a record's head, or, with a tail, of all but its body."""
    import numpy  # late, as in optional_numpy, which has found it

    fields = {
        "size": (">i4", 0),
        "body_crc": (">i4", 8),
        "flag": (">i4", 16),
        "sys_flag": (">i4", RecordLayout.SYS_FLAG),
        "body_size": (">i4", layout.body_size),
    }
    if tail_size:
        id_end = layout.body + tail_size - CHECKSUM_SIZE - len(PROPERTY_SEPARATOR)
        counter = id_end - COUNTER_DIGITS
        fields["counter"] = (f"V{COUNTER_DIGITS}", counter)
        fields["key"] = (f"V{key_size}", counter - id_head_size - len(BEFORE_ID) - key_size)
    return numpy.dtype(
        {
            "names": list(fields),
            "formats": [kind for kind, _ in fields.values()],
            "offsets": [offset for _, offset in fields.values()],
            "itemsize": layout.body + tail_size,
        }
    )


def decode_messages(
    queue: MessageQueue,
    records: Buffer,
    sizes: Sequence[int],
    *,
    start: int = 0,
    wanted: Callable[[ReceivedMessage], bool] | None = None,
) -> list[ReceivedMessage]:
    """Return the messages in *records* from *start* on, in order.

    Args:
        queue: Their queue.
        records: The bytes that the messages refer to; bodies are read fastest from ``bytes``.
        sizes: The size of each record.
        start: The start of the first one.
        wanted: Returns whether to include a message.
    """
    starts = list(accumulate(sizes[:-1], initial=start)) if sizes else []
    offsets = _queue_offsets(records, starts)
    messages = map(ReceivedMessage, repeat(queue), offsets, repeat(records), starts, sizes)
    return list(messages if wanted is None else filter(wanted, messages))


def _queue_offsets(records: Buffer, starts: Sequence[int]) -> Sequence[int]:
    if not starts:
        return starts
    read = _I64.unpack_from
    (first,) = read(records, starts[0] + RecordLayout.QUEUE_OFFSET)
    (last,) = read(records, starts[-1] + RecordLayout.QUEUE_OFFSET)
    if last - first == len(starts) - 1:  # they only grow, so none is left out
        return range(first, last + 1)
    if len(starts) < COLUMNS_FROM or optional_numpy() is None:
        return [read(records, start + RecordLayout.QUEUE_OFFSET)[0] for start in starts]
    import numpy  # late, as in optional_numpy, which has found it

    octets = numpy.frombuffer(records, numpy.uint8)
    field = numpy.arange(RecordLayout.QUEUE_OFFSET, RecordLayout.QUEUE_OFFSET + 8)
    cells = octets[numpy.array(starts)[:, None] + field]
    offsets: list[int] = cells.view(">i8").ravel().tolist()
    return offsets
