"""Messages to wire batches, and pulled bytes to messages: the two ends of the hot path.

A batch is what ``eruca.contract.wire`` describes: a preamble, a column of sizes, and log records
whose broker's fields are zero. Two ways to build it give the same bytes: columns with numpy, which
costs more to begin and less per message, and a struct loop; they are about equally fast at 28
messages. Without numpy the loop does it all.

A pull is decoded no further than where each record starts and which queue offset it has; see
:class:`eruca.core.received_message.ReceivedMessage`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from eruca.contract.records import (
    BODY_CRC_MASK,
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
from eruca.core.accelerators import compress, crc32, optional_numpy
from eruca.core.message import Message
from eruca.core.message_queue import MessageQueue
from eruca.core.received_message import ReceivedMessage

if TYPE_CHECKING:
    import numpy

COLUMNS_FROM: Final = 28  # messages from which columns are faster than the loop
COMPRESSION_LEVEL: Final = 5  # RocketMQ's
_COMPRESSED: Final = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
_NO_ADDRESS_V6: Final = bytes(16)


class EncodedBatch(NamedTuple):
    """A request body, and how large each record in it is."""

    body: bytes
    sizes: Sequence[int]


def encode_messages(
    messages: Sequence[Message],
    message_ids: Sequence[str],
    *,
    queue_id: int,
    born_timestamp: int,
    store_host_v6: bool = False,
    compression_threshold: int | None = None,
) -> EncodedBatch:
    """Return the batch that stores *messages* of one topic, each under its id.

    Bodies of at least *compression_threshold* bytes are compressed where that makes them smaller.
    """
    assert len(messages) == len(message_ids) > 0
    contents = _Contents(messages, message_ids)
    if compression_threshold is not None:
        contents.compress(compression_threshold)
    template = _Template(messages[0]._topic, queue_id, born_timestamp, store_host_v6=store_host_v6)
    if len(messages) < COLUMNS_FROM or optional_numpy() is None:
        return _encode_by_loop(template, contents)
    return _encode_by_columns(template, contents)


class _Contents:
    """What the records of a batch hold, as columns."""

    def __init__(self, messages: Sequence[Message], message_ids: Sequence[str]) -> None:
        self.bodies = [message._body for message in messages]
        self.properties = [
            f"{message._head}{message_id}{message._tail}".encode()
            for message, message_id in zip(messages, message_ids, strict=True)
        ]
        self.flags = [message._flag for message in messages]
        self.sys_flags = [0] * len(messages)

    def compress(self, threshold: int) -> None:
        """Compress bodies of at least *threshold* bytes, where it makes them smaller."""
        if max(map(len, self.bodies)) < threshold:
            return
        for i, body in enumerate(self.bodies):
            if len(body) >= threshold:
                packed = compress(body, COMPRESSION_LEVEL)
                if len(packed) < len(body):
                    self.bodies[i] = packed
                    self.sys_flags[i] = _COMPRESSED


class _Template:
    """What all records of a batch have in common."""

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
        self.fixed_size = self.layout.body + len(self.topic) + 2  # all but body and properties

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
            0,  # no half message
            body_size,
        )


def _encode_by_loop(template: _Template, contents: _Contents) -> EncodedBatch:
    pieces = [b""]
    sizes = []
    header, topic, fixed_size = template.header, template.topic, template.fixed_size
    for body, properties, flag, sys_flag in zip(
        contents.bodies, contents.properties, contents.flags, contents.sys_flags, strict=True
    ):
        body_size = len(body)
        size = fixed_size + body_size + len(properties)
        crc = crc32(body) & BODY_CRC_MASK
        sizes.append(size)
        pieces += (
            header(size, body_crc=crc, flag=flag, sys_flag=sys_flag, body_size=body_size),
            body,
            topic,
            len(properties).to_bytes(2, "big"),
            properties,
        )
    preamble = BATCH_PREAMBLE.pack(BATCH_MAGIC, len(sizes), sum(sizes), 0)
    pieces[0] = preamble + struct.pack(f">{len(sizes)}I", *sizes)
    return EncodedBatch(b"".join(pieces), sizes)


def _encode_by_columns(template: _Template, contents: _Contents) -> EncodedBatch:
    import numpy  # late, as in optional_numpy, which has found it

    count = len(contents.bodies)
    body_sizes = numpy.fromiter(map(len, contents.bodies), numpy.int64, count)
    properties_sizes = numpy.fromiter(map(len, contents.properties), numpy.int64, count)
    sizes = body_sizes + properties_sizes + template.fixed_size
    crcs = numpy.fromiter(map(crc32, contents.bodies), numpy.int64, count)
    blank = bytearray(template.header() * count)
    headers = numpy.frombuffer(blank, _header_fields(template.layout))
    headers["size"] = sizes
    headers["body_crc"] = crcs & BODY_CRC_MASK
    headers["body_size"] = body_sizes
    if any(contents.flags):
        headers["flag"] = contents.flags
    if any(contents.sys_flags):
        headers["sys_flag"] |= numpy.array(contents.sys_flags, ">i4")
    tails = numpy.frombuffer(
        bytearray((template.topic + bytes(2)) * count), _tail_fields(len(template.topic))
    )
    tails["properties_size"] = properties_sizes
    # One column of the records' parts after another; the join then lays them in rows.
    pieces = [b""] * (4 * count + 1)
    preamble = BATCH_PREAMBLE.pack(BATCH_MAGIC, count, int(sizes.sum()), 0)
    pieces[0] = preamble + sizes.astype(">u4").tobytes()
    pieces[1::4] = _rows(headers)
    pieces[2::4] = contents.bodies
    pieces[3::4] = _rows(tails)
    pieces[4::4] = contents.properties
    return EncodedBatch(b"".join(pieces), sizes.tolist())


def _rows(fields: numpy.ndarray) -> list[bytes]:
    rows: list[bytes] = fields.view(f"V{fields.itemsize}").tolist()
    return rows


@cache
def _header_fields(layout: RecordLayout) -> numpy.dtype:
    import numpy  # late, as in optional_numpy, which has found it

    return numpy.dtype(
        {
            "names": ["size", "body_crc", "flag", "sys_flag", "body_size"],
            "formats": [">i4", ">i4", ">i4", ">i4", ">i4"],
            "offsets": [0, 8, 16, RecordLayout.SYS_FLAG, layout.body_size],
            "itemsize": layout.body,
        }
    )


@cache
def _tail_fields(topic_size: int) -> numpy.dtype:
    import numpy  # late, as in optional_numpy, which has found it

    return numpy.dtype(
        {
            "names": ["properties_size"],
            "formats": [">u2"],
            "offsets": [topic_size],
            "itemsize": topic_size + 2,
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
        queue: Where they lie.
        records: What they are windows into; of bytes, a body is read fastest.
        sizes: How large each record is.
        start: Where the first one begins.
        wanted: Leaves some of them out.
    """
    starts = list(accumulate(sizes[:-1], initial=start)) if sizes else []
    offsets = _queue_offsets(records, starts)
    messages = map(ReceivedMessage, repeat(queue), offsets, repeat(records), starts, sizes)
    return list(messages if wanted is None else filter(wanted, messages))


def _queue_offsets(records: Buffer, starts: Sequence[int]) -> Sequence[int]:
    if len(starts) < COLUMNS_FROM or optional_numpy() is None:
        read = struct.Struct(">q").unpack_from
        return [read(records, start + RecordLayout.QUEUE_OFFSET)[0] for start in starts]
    import numpy  # late, as in optional_numpy, which has found it

    octets = numpy.frombuffer(records, numpy.uint8)
    field = numpy.arange(RecordLayout.QUEUE_OFFSET, RecordLayout.QUEUE_OFFSET + 8)
    cells = octets[numpy.array(starts)[:, None] + field]
    offsets: list[int] = cells.view(">i8").ravel().tolist()
    return offsets
