"""A pulled message: a view of the answer's bytes, decoded only on access.

A pull returns thousands of messages, so an unread one must cost almost nothing. It stores a
reference to the answer, its position in it, its queue and its offset. The answer stays in memory as
long as one of its messages. Pickling or :meth:`ReceivedMessage.detached` copies a message out.

A retry is a copy of a message in a group's retry topic. Its ``topic`` is the original topic;
``queue`` is the copy's queue.

Source: RocketMQ 5.3, ``MessageExt``, ``MessageDecoder``.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self, TypeVar, overload

import msgspec

from eruca.contract.errors import DamagedMessageError
from eruca.contract.message_ids import encode_offset_id
from eruca.contract.names import RETRY_TOPIC_PREFIX
from eruca.contract.properties import (
    KEYS,
    RESERVED,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
    decode_properties,
    split_keys,
)
from eruca.contract.records import (
    BODY_CRC_MASK,
    COMPRESSION_MASK,
    HOST_BITS,
    LAYOUT_V4,
    MAGIC_V2,
    Buffer,
    Host,
    RecordLayout,
    SysFlag,
    layout_of,
)
from eruca.core.messages.accelerators import crc32
from eruca.core.messages.body_codecs import CODECS, unpacked
from eruca.core.messages.message_queue import MessageQueue

T = TypeVar("T")

_I32: Final = struct.Struct(">i")
_read_i32 = _I32.unpack_from
_U16: Final = struct.Struct(">H")
_I64: Final = struct.Struct(">q")
# Checksum, flags and body size for IPv4 hosts: the fields needed to read a body.
_read_body_fields = struct.Struct(
    f">8xi24xi{LAYOUT_V4.body_size - RecordLayout.SYS_FLAG - 4}xi"
).unpack_from
_BODY_START: Final = LAYOUT_V4.body
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_COMPRESSED: Final = int(SysFlag.COMPRESSED)  # a plain int: the enum's operators cost 0.5 µs
# A copy's original topic: the first of these that exists; a dead letter may have been a retry.
_ORIGIN_TOPICS: Final = ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")
_ORIGIN_MESSAGE_IDS: Final = ("ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID")
_MAGIC: Final = 4
_FLAG: Final = 16


class ReceivedMessage(msgspec.Struct, gc=False, eq=False, repr_omit_defaults=True):
    """A stored message; all fields except queue and offset are decoded on access."""

    queue: MessageQueue
    queue_offset: int  # index in the queue
    _records: Buffer  # contains the record
    _start: int  # of its record
    size: int  # bytes of its record
    _body: bytes | None = None
    _retried: int = 0  # retries in place, by an ordered consumer; the record does not count them
    _damage: str | None = None  # set if there is no record

    @classmethod
    def damaged(cls, queue: MessageQueue, queue_offset: int, damage: str) -> Self:
        """Return the stand-in for a damaged message: its place, and the fault."""
        return cls(queue, queue_offset, b"", 0, 0, None, 0, damage)

    @property
    def damage(self) -> str | None:
        """Fault of the message on its broker's disk; None: it is undamaged.

        A damaged message has only ``queue``, ``queue_offset`` and ``damage``. Every other field
        raises DamagedMessageError.
        """
        return self._damage

    @property
    def topic(self) -> str:
        """Its topic; for a retry, the original topic."""
        topic = self.queue.topic
        return self.origin_topic if topic.startswith(RETRY_TOPIC_PREFIX) else topic

    @property
    def origin_topic(self) -> str:
        """The original topic: for a retry or a dead letter, else its queue's."""
        return self._first_of(_ORIGIN_TOPICS) or self.queue.topic

    @property
    def origin_message_id(self) -> str:
        """The offset id of the original message of a retry or a dead letter, else its own."""
        return self._first_of(_ORIGIN_MESSAGE_IDS) or self.offset_message_id

    @property
    def body(self) -> bytes:
        """The body, decompressed; the first access verifies its checksum.

        Raises:
            DamagedMessageError: The bytes differ from the producer's; or they are compressed with
                LZ4 or Zstandard, and pyarrow is not installed.
        """
        if self._body is not None:
            return self._body
        if self._damage is not None:  # a call less for each message
            self._check()
        records, start = self._records, self._start
        crc, sys_flag, size = _read_body_fields(records, start)
        body_start = start + _BODY_START
        if sys_flag & HOST_BITS:
            layout = layout_of(sys_flag)
            (size,) = _read_i32(records, start + layout.body_size)
            body_start = start + layout.body
        body = records[body_start : body_start + size]
        if body.__class__ is not bytes:
            body = bytes(body)
        if crc32(body) & BODY_CRC_MASK != crc:
            raise DamagedMessageError(f"{self._place()}: the body does not match its checksum")
        if sys_flag & _COMPRESSED:
            body = self._unpacked(body, sys_flag)
        self._body = body
        return body

    def text(self) -> str:
        """Return the body as UTF-8 text."""
        return self.body.decode()

    @overload
    def json(self) -> Any: ...  # noqa: ANN401 - a JSON value may be anything

    @overload
    def json(self, type: type[T]) -> T: ...

    def json(self, type: Any = Any) -> Any:
        """Return the body as a JSON value, validated and converted to *type*.

        *type* is any type that msgspec decodes to, or a pydantic model.
        """
        validate = getattr(type, "model_validate_json", None)
        if callable(validate):
            return validate(self.body)
        return msgspec.json.decode(self.body, type=type)

    @property
    def tag(self) -> str | None:
        """Its tag."""
        return self._all_properties().get(TAGS)

    @property
    def keys(self) -> list[str]:
        """Its keys."""
        return split_keys(self._all_properties().get(KEYS))

    @property
    def sharding_key(self) -> str | None:
        """The sharding key, which selected the queue."""
        return self._all_properties().get(SHARDING_KEY)

    @property
    def message_id(self) -> str | None:
        """The unique id from its producer; retries and copies have the same one."""
        return self._all_properties().get(UNIQ_KEY)

    @property
    def offset_message_id(self) -> str:
        """The id that contains the place where it is stored."""
        return encode_offset_id(self.store_host, self.log_offset)

    @property
    def properties(self) -> dict[str, str]:
        """The application's own names and values."""
        return {n: v for n, v in self._all_properties().items() if n not in RESERVED}

    @property
    def system_properties(self) -> dict[str, str]:
        """All other properties, by RocketMQ's names."""
        return {n: v for n, v in self._all_properties().items() if n in RESERVED}

    @property
    def broker_name(self) -> str:
        """The broker it came from."""
        return self.queue.broker_name

    @property
    def queue_id(self) -> int:
        """Its queue on that broker."""
        return self.queue.queue_id

    @property
    def flag(self) -> int:
        """The application's number."""
        return self._i32(_FLAG)

    @property
    def log_offset(self) -> int:
        """Start of the record in the broker's log, in bytes."""
        return self._i64(RecordLayout.LOG_OFFSET)

    @property
    def born_at(self) -> datetime:
        """Creation time, by the producer's clock."""
        return _moment(self._i64(RecordLayout.BORN_TIMESTAMP))

    @property
    def born_host(self) -> Host:
        """The producer's address."""
        return self._host(RecordLayout.BORN_HOST, self._layout().born_host_size)

    @property
    def stored_at(self) -> datetime:
        """Store time, by the broker's clock."""
        return _moment(self.stored_at_ms)

    @property
    def stored_at_ms(self) -> int:
        """Store time, in ms since the epoch."""
        return self._i64(self._layout().store_timestamp)

    @property
    def store_host(self) -> Host:
        """The broker that stored it."""
        layout = self._layout()
        return self._host(layout.store_host, layout.store_host_size)

    @property
    def reconsume_times(self) -> int:
        """Number of retries so far."""
        return self._i32(self._layout().reconsume_times) + self._retried

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return self.reconsume_times + 1

    @property
    def record(self) -> bytes:
        """Its record, byte for byte as in the log."""
        self._check()
        return bytes(self._records[self._start : self._start + self.size])

    def detached(self) -> ReceivedMessage:
        """Return the same message without the rest of its answer."""
        if self._damage is not None:
            return self
        return ReceivedMessage(self.queue, self.queue_offset, self.record, 0, self.size)

    def __reduce__(self) -> tuple[Any, ...]:
        record = b"" if self._damage is not None else self.record
        parts = (self.queue, self.queue_offset, record, 0, self.size, None)
        return (ReceivedMessage, (*parts, self._retried, self._damage))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReceivedMessage):
            return NotImplemented
        if self._damage is not None or other._damage is not None:
            places = [(one.queue, one.queue_offset, one._damage) for one in (self, other)]
            return places[0] == places[1]
        return self.queue == other.queue and self.record == other.record

    def __hash__(self) -> int:
        return hash((self.queue, self.queue_offset))

    def __repr__(self) -> str:
        told = f"tag={self.tag!r}" if self._damage is None else "damaged"
        return f"ReceivedMessage({self._place()}, {told})"

    def _layout(self) -> RecordLayout:
        return layout_of(self._sys_flag())

    def _sys_flag(self) -> int:
        return self._i32(RecordLayout.SYS_FLAG)

    def _check(self) -> None:
        if self._damage is not None:
            raise DamagedMessageError(
                f"{self._place()}: the broker found the message damaged: {self._damage}",
                fix="skip it; its broker's log names the file to restore from a backup",
            )

    def _i32(self, position: int) -> int:
        self._check()
        value: int = _read_i32(self._records, self._start + position)[0]
        return value

    def _i64(self, position: int) -> int:
        self._check()
        value: int = _I64.unpack_from(self._records, self._start + position)[0]
        return value

    def _host(self, position: int, size: int) -> Host:
        start = self._start + position
        raw = bytes(self._records[start : start + size])
        return Host(raw[:-4], _I32.unpack(raw[-4:])[0])

    def _unpacked(self, stored: bytes, sys_flag: int) -> bytes:
        codec = CODECS.get(sys_flag & COMPRESSION_MASK)
        if codec is None:
            raise DamagedMessageError(f"{self._place()}: the body's compression is unknown")
        try:
            return unpacked(stored, codec)
        except ModuleNotFoundError:
            raise DamagedMessageError(
                f"{self._place()}: the body is compressed with {codec}, which requires pyarrow",
                fix="install it, for example as the extra eruca[arrow]; or configure its"
                " producer to use zlib",
            ) from None
        except ValueError as error:
            raise DamagedMessageError(
                f"{self._place()}: the body cannot be decompressed: {error}"
            ) from None

    def _all_properties(self) -> dict[str, str]:
        records = self._records
        layout = self._layout()
        position = self._start + layout.body + self._i32(layout.body_size)
        if self._i32(_MAGIC) & 0xFFFF_FFFF == MAGIC_V2:
            position += 2 + _U16.unpack_from(records, position)[0]
        else:
            position += 1 + records[position]
        size: int = _U16.unpack_from(records, position)[0]
        text = str(records[position + 2 : position + 2 + size], "utf-8", "surrogatepass")
        return decode_properties(text)

    def _first_of(self, names: tuple[str, ...]) -> str | None:
        properties = self._all_properties()
        return next((properties[name] for name in names if name in properties), None)

    def _place(self) -> str:
        return "/".join(map(str, self.queue)) + f" at {self.queue_offset}"


def _moment(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
