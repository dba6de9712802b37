"""The commit log's record, byte by byte: the same on disk, in a batch, and in a pull.

Layout, big-endian (the two hosts are 4 + 4 bytes, or 16 + 4 where SYSFLAG says IPv6)::

    TOTALSIZE       i32   the whole record, this field included
    MAGICCODE       u32   V1, or V2 if the topic's length takes two bytes
    BODYCRC         i32   CRC-32 of the stored body, 31 bits
    QUEUEID         i32
    FLAG            i32   the application's
    QUEUEOFFSET     i64   index in the queue, counted in messages
    PHYSICALOFFSET  i64   the record's own first byte, counted from the start of the log
    SYSFLAG         i32   see SysFlag
    BORNTIMESTAMP   i64   ms since the epoch, the producer's clock
    BORNHOST        8 | 20
    STORETIMESTAMP  i64   ms since the epoch, the broker's clock
    STOREHOST       8 | 20
    RECONSUMETIMES  i32
    PREPAREDOFFSET  i64   log offset of the half message that this one decides
    BODY            i32 length, bytes
    TOPIC           u8 (V1) or i16 (V2) length, bytes
    PROPERTIES      i16 length, bytes (see eruca.contract.properties)

The last 20 bytes of the properties are the record's *checksum*, RocketMQ's property ``__CRC32#``:
CRC-32, 31 bits, of all preceding bytes. The broker writes it into every record, after the offsets
and the store time. RocketMQ writes it only if it is so configured (``enabledAppendPropCRC``); its
other records protect only the body, by BODYCRC. In the text ``name U+0001 value U+0002`` the value
is ten digits, the lowest first.

A segment ends with a *blank* record: TOTALSIZE = the bytes left, then the blank magic.

Source: RocketMQ 5.3, ``MessageExtEncoder``, ``MessageDecoder``, ``CommitLog``, ``UtilAll.crc32``.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace
from enum import IntFlag
from ipaddress import ip_address
from typing import Final, NamedTuple, Self

from eruca.contract.properties import (
    CHECKSUM,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    decode_properties,
)

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB  # the topic's length takes two bytes
MAGIC_BLANK: Final = 0xCBD43194
BLANK_SIZE_MIN: Final = 8  # bytes a segment keeps free behind its last record

V1_TOPIC_SIZE_MAX: Final = 127  # bytes
IPV4_HOST_SIZE: Final = 8
IPV6_HOST_SIZE: Final = 20
PORT_MAX: Final = 65_535
BODY_CRC_MASK: Final = 0x7FFF_FFFF

_CHECKSUM_DIGITS: Final = 10
CHECKSUM_ROOM: Final = f"{CHECKSUM}{NAME_SEPARATOR}{'0' * _CHECKSUM_DIGITS}{PROPERTY_SEPARATOR}"
"""End of a record's properties before its checksum is written."""

_CHECKSUM_FORM: Final = CHECKSUM_ROOM.encode()
CHECKSUM_SIZE: Final = len(_CHECKSUM_FORM)  # bytes
_CHECKSUM_DIGITS_AT: Final = len(CHECKSUM) + 1
CHECKSUM_WRONG_MAX: Final = 4  # bytes: a text with more differences is not a checksum

Buffer = bytes | bytearray | memoryview


class DamagedRecordError(ValueError):
    """The bytes at an offset are not a complete, undamaged record."""


class SysFlag(IntFlag):
    """Bits of SYSFLAG."""

    COMPRESSED = 1
    MULTI_TAGS = 2
    PREPARED = 4
    COMMIT = 8
    ROLLBACK = 12  # a mask as well: both transaction bits
    BORN_HOST_V6 = 16
    STORE_HOST_V6 = 32
    NEED_UNWRAP = 64
    INNER_BATCH = 128
    COMPRESSION_LZ4 = 256
    COMPRESSION_ZSTD = 512
    COMPRESSION_ZLIB = 768


COMPRESSION_MASK: Final = 0x7 << 8


class Host(NamedTuple):
    """An address in a record: 4 or 16 bytes and a port."""

    address: bytes
    port: int

    @classmethod
    def parse(cls, ip: str, port: int) -> Self:
        """Return the host of a literal IPv4 or IPv6 address.

        Raises:
            ValueError: *ip* is a name, or has a zone. A zone is any text, and a record has no
                room for it.
        """
        address = ip_address(ip).packed
        if "%" in ip:
            raise ValueError(f"expected an address without a zone, found {ip!r}")
        return cls(address, port)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the host of ``IP:port``, an IPv6 address with or without brackets.

        Raises:
            ValueError: *text* is not of this form.
        """
        ip, _, port = text.rpartition(":")
        if not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
            raise ValueError(f"expected IP:PORT, found {text!r}")
        return cls.parse(ip[1:-1] if ip.startswith("[") and ip.endswith("]") else ip, int(port))

    @property
    def text(self) -> str:
        """``IP:port``, an IPv6 address in brackets."""
        return f"[{self.ip}]:{self.port}" if self.is_v6 else f"{self.ip}:{self.port}"

    @property
    def ip(self) -> str:
        """The address as text."""
        return str(ip_address(self.address))

    @property
    def is_v6(self) -> bool:
        """True if the address takes 16 bytes."""
        return len(self.address) == IPV6_HOST_SIZE - 4

    def encode(self) -> bytes:
        """Return the host's 8 or 20 bytes in a record."""
        return self.address + struct.pack(">i", self.port)


NO_HOST: Final = Host(bytes(4), 0)


class RecordLayout:
    """Positions of the fields after the first host; all other fields have fixed positions."""

    QUEUE_ID: Final = 12
    QUEUE_OFFSET: Final = 20
    LOG_OFFSET: Final = 28
    SYS_FLAG: Final = 36
    BORN_TIMESTAMP: Final = 40
    BORN_HOST: Final = 48

    def __init__(self, *, born_v6: bool, store_v6: bool) -> None:
        self.born_host_size = IPV6_HOST_SIZE if born_v6 else IPV4_HOST_SIZE
        self.store_host_size = IPV6_HOST_SIZE if store_v6 else IPV4_HOST_SIZE
        self.store_timestamp = self.BORN_HOST + self.born_host_size
        self.store_host = self.store_timestamp + 8
        self.reconsume_times = self.store_host + self.store_host_size
        self.prepared_offset = self.reconsume_times + 4
        self.body_size = self.prepared_offset + 8
        self.body = self.body_size + 4
        # Everything up to the body's length, in the order of the module's table.
        self.header = struct.Struct(
            f">iIiiiqqiq{self.born_host_size - 4}siq{self.store_host_size - 4}siiqi"
        )
        assert self.header.size == self.body


_LAYOUTS: Final = {
    bits: RecordLayout(
        born_v6=bool(bits & SysFlag.BORN_HOST_V6), store_v6=bool(bits & SysFlag.STORE_HOST_V6)
    )
    for bits in (0, 16, 32, 48)
}
HOST_BITS: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
LAYOUT_V4: Final = _LAYOUTS[0]
RECORD_SIZE_MIN: Final = LAYOUT_V4.body + 1 + 2  # empty body, topic and properties: 91 bytes


def layout_of(sys_flag: int) -> RecordLayout:
    """Return the layout of a record with this SYSFLAG."""
    return _LAYOUTS[sys_flag & HOST_BITS]


@dataclass(slots=True)
class Record:
    """The fields of a record; offsets in bytes (log) or messages (queue), timestamps in ms."""

    topic: str
    body: bytes
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    log_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = NO_HOST
    store_timestamp: int = 0
    store_host: Host = NO_HOST
    reconsume_times: int = 0
    prepared_offset: int = 0
    properties: str = ""  # the stored text, see eruca.contract.properties
    body_crc: int | None = None  # None: computed from the body when encoded
    size: int = field(default=0, compare=False)  # bytes on disk; set by decode_record

    def property_map(self) -> dict[str, str]:
        """Return the properties by name."""
        return decode_properties(self.properties)


def body_crc(body: Buffer) -> int:
    """Return BODYCRC: CRC-32 with the sign bit cleared."""
    return zlib.crc32(body) & BODY_CRC_MASK


def encode_record(record: Record, *, with_checksum: bool = False) -> bytes:
    """Return the bytes of *record*.

    Its hosts determine the host bits of its ``sys_flag``. A topic of more than 127 bytes gets the
    V2 layout. *with_checksum* appends the whole record's checksum to the properties.

    Raises:
        ValueError: Topic or properties do not fit their length fields.
    """
    topic = record.topic.encode()
    text = _closed(record.properties) if with_checksum else record.properties
    properties = text.encode("utf-8", "surrogatepass")
    is_v2 = len(topic) > V1_TOPIC_SIZE_MAX
    # Plain numbers: a SysFlag made from a negative number would lose its unnamed bits.
    sys_flag = record.sys_flag & ~HOST_BITS
    sys_flag |= int(SysFlag.BORN_HOST_V6) if record.born_host.is_v6 else 0
    sys_flag |= int(SysFlag.STORE_HOST_V6) if record.store_host.is_v6 else 0
    layout = layout_of(sys_flag)
    crc_size = CHECKSUM_SIZE if with_checksum else 0
    properties_size = len(properties) + crc_size
    if properties_size > 0x7FFF or len(topic) > 0x7FFF:
        raise ValueError("topic or properties exceed their length field of 32 767 bytes")
    topic_head = len(topic).to_bytes(2 if is_v2 else 1, "big")
    size = layout.body + len(record.body) + len(topic_head) + len(topic) + 2 + properties_size
    header = layout.header.pack(
        size,
        MAGIC_V2 if is_v2 else MAGIC_V1,
        body_crc(record.body) if record.body_crc is None else record.body_crc,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.log_offset,
        sys_flag,
        record.born_timestamp,
        record.born_host.address,
        record.born_host.port,
        record.store_timestamp,
        record.store_host.address,
        record.store_host.port,
        record.reconsume_times,
        record.prepared_offset,
        len(record.body),
    )
    encoded = b"".join(
        (header, record.body, topic_head, topic, properties_size.to_bytes(2, "big"), properties)
    )
    return encoded + _checksum_of(encoded) if with_checksum else encoded


def encode_unstamped(record: Record) -> bytes:
    """Return the bytes of *record* with room for the checksum that the broker stamps."""
    return encode_record(replace(record, properties=_closed(record.properties) + CHECKSUM_ROOM))


def _closed(properties: str) -> str:
    """Return *properties* with a separator at the end, so that another property can follow."""
    is_open = properties and not properties.endswith(PROPERTY_SEPARATOR)
    return properties + PROPERTY_SEPARATOR if is_open else properties


def encode_blank(size: int) -> bytes:
    """Return the eight bytes that mark the last *size* bytes of a segment as unused."""
    assert size >= BLANK_SIZE_MIN, size
    return struct.pack(">iI", size, MAGIC_BLANK)


def decode_record(buffer: Buffer, start: int = 0, *, check_crc: bool = True) -> Record:
    """Return the record at *start*; the next one starts ``size`` bytes later.

    Raises:
        DamagedRecordError: There is no complete, undamaged record of a known version.
    """
    view = memoryview(buffer)
    available = len(view) - start
    if available < RECORD_SIZE_MIN:
        raise DamagedRecordError(f"{max(available, 0)} bytes are too few for a record")
    size, magic = struct.unpack_from(">iI", view, start)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise DamagedRecordError(f"unknown magic {magic:#010x}")
    if not RECORD_SIZE_MIN <= size <= available:
        raise DamagedRecordError(f"size {size} does not fit into the {available} bytes left")
    (raw_flag,) = struct.unpack_from(">i", view, start + RecordLayout.SYS_FLAG)
    layout = layout_of(raw_flag)
    topic_head_size = 2 if magic == MAGIC_V2 else 1
    if size < layout.body + topic_head_size + 2:
        raise DamagedRecordError(f"size {size} is too small for its header")
    fields = layout.header.unpack_from(view, start)
    body_size = fields[-1]
    body_end = layout.body + body_size
    if body_size < 0 or body_end + topic_head_size + 2 > size:
        raise DamagedRecordError(f"body of {body_size} bytes does not fit into size {size}")
    topic_start = start + body_end + topic_head_size
    topic_size = int.from_bytes(view[start + body_end : topic_start], "big")
    topic_end = topic_start + topic_size
    if topic_end - start + 2 > size:
        raise DamagedRecordError(f"topic of {topic_size} bytes does not fit into size {size}")
    properties_start = topic_end + 2
    properties_size = int.from_bytes(view[topic_end:properties_start], "big")
    if properties_start - start + properties_size != size:
        raise DamagedRecordError("the parts' lengths do not add up to the record's size")
    if check_crc and (fault := checksum_fault(view[start : start + size])) is not None:
        raise DamagedRecordError(fault)
    body = bytes(view[start + layout.body : start + body_end])
    if check_crc and body_crc(body) != fields[2]:
        raise DamagedRecordError("the body does not match its CRC")
    try:
        topic = str(view[topic_start:topic_end], "utf-8")
    except UnicodeDecodeError as error:
        raise DamagedRecordError(f"the topic is not UTF-8: {error}") from error
    raw_properties = bytes(view[properties_start : start + size])
    try:
        properties = raw_properties.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # The producer's error, not damage: the message is readable and must not stop recovery.
        properties = raw_properties.decode("utf-8", "replace")
    return Record(
        topic=topic,
        body=body,
        queue_id=fields[3],
        flag=fields[4],
        queue_offset=fields[5],
        log_offset=fields[6],
        sys_flag=raw_flag,
        born_timestamp=fields[8],
        born_host=Host(fields[9], fields[10]),
        store_timestamp=fields[11],
        store_host=Host(fields[12], fields[13]),
        reconsume_times=fields[14],
        prepared_offset=fields[15],
        properties=properties,
        body_crc=fields[2],
        size=size,
    )


def checksum_fault(encoded: Buffer) -> str | None:
    """Return the fault of a record's checksum; None if it is right or absent.

    Bytes that almost have a checksum's form count as a damaged checksum. Otherwise one changed byte
    in it would turn a record with a wrong checksum into a record without one.
    """
    assert len(encoded) >= CHECKSUM_SIZE
    found = bytes(encoded[-CHECKSUM_SIZE:])
    wrong = _wrong_bytes(found)
    if wrong > CHECKSUM_WRONG_MAX:
        return None
    if wrong or found != _checksum_of(encoded[:-CHECKSUM_SIZE]):
        return "the record does not match its checksum"
    return None


def _wrong_bytes(found: bytes) -> int:
    """Return how many bytes of *found* differ from a checksum's form."""
    digits = slice(_CHECKSUM_DIGITS_AT, _CHECKSUM_DIGITS_AT + _CHECKSUM_DIGITS)
    wrong = sum(not 0x30 <= byte <= 0x39 for byte in found[digits])
    form = _CHECKSUM_FORM[: digits.start] + _CHECKSUM_FORM[digits.stop :]
    rest = found[: digits.start] + found[digits.stop :]
    return wrong + sum(a != b for a, b in zip(form, rest, strict=True))


def _checksum_of(encoded: Buffer) -> bytes:
    # RocketMQ writes the digits of the checksum lowest first, padded with zeros.
    digits = str(body_crc(encoded))[::-1].ljust(_CHECKSUM_DIGITS, "0")
    return f"{CHECKSUM}{NAME_SEPARATOR}{digits}{PROPERTY_SEPARATOR}".encode()
