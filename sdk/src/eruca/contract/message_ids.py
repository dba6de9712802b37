"""Message ids: the offset id encodes a message's place, the unique id identifies the message.

======================  =========  ===================================================
id                      bytes      layout
======================  =========  ===================================================
offset id               16 or 28   store host's address, port 4, log offset 8
unique id (UNIQ_KEY)    16 or 28   client's address, process id 2, instance 4,
                                   ms since the start of the month 4, counter 2
======================  =========  ===================================================

Both are written in upper-case hex and look alike: a text may be either of them.

Source: RocketMQ 5.3, ``MessageDecoder.createMessageId``, ``MessageClientIDSetter``.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from eruca.contract.records import Host

_V4_SIZE: Final = 16  # bytes of either id
_V6_SIZE: Final = 28
_MS: Final = timedelta(milliseconds=1)


class UndecodableIdError(ValueError):
    """The text is not a message id: not hex, or not 32 or 56 characters long."""


class OffsetId(NamedTuple):
    """The parts of an offset id."""

    host: Host
    log_offset: int  # bytes from the start of that broker's log


class UniqueId(NamedTuple):
    """The parts of a unique id."""

    address: bytes
    process_id: int  # low 16 bits
    instance: int  # RocketMQ: hash of the class loader; here: random, once per client
    month_ms: int  # low 32 bits of the ms since the start of the month
    counter: int  # low 16 bits


def encode_offset_id(host: Host, log_offset: int) -> str:
    """Return the id of the message at *log_offset* of the broker at *host*."""
    return (host.address + struct.pack(">iq", host.port, log_offset)).hex().upper()


def decode_offset_id(text: str) -> OffsetId:
    """Return the parts of an offset id.

    Raises:
        UndecodableIdError: *text* is not 32 or 56 hex digits.
    """
    raw = _decode(text)
    port, log_offset = struct.unpack(">iq", raw[-12:])
    return OffsetId(Host(raw[:-12], port), log_offset)


def encode_unique_id(
    address: bytes, process_id: int, instance: int, month_ms: int, counter: int
) -> str:
    """Return a client's id for one message; each number is truncated to its field's width."""
    tail = struct.pack(
        ">HIIH",
        process_id & 0xFFFF,
        instance & 0xFFFF_FFFF,
        month_ms & 0xFFFF_FFFF,
        counter & 0xFFFF,
    )
    return (address + tail).hex().upper()


def decode_unique_id(text: str) -> UniqueId:
    """Return the parts of a unique id.

    Raises:
        UndecodableIdError: *text* is not 32 or 56 hex digits.
    """
    raw = _decode(text)
    return UniqueId(raw[:-12], *struct.unpack(">HIIH", raw[-12:]))


def month_start_ms(now_ms: int, zone: tzinfo = UTC) -> int:
    """Return the start of *now_ms*'s month in *zone*, in ms since the epoch."""
    start = _at(now_ms, zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return _ms(start)


def _decode(text: str) -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError as error:
        raise UndecodableIdError(f"{text!r} is not hexadecimal") from error
    if len(raw) not in (_V4_SIZE, _V6_SIZE) or len(text) != 2 * len(raw):
        raise UndecodableIdError(f"expected 32 or 56 hex digits, found {text!r}")
    return raw


def _at(ms: int, zone: tzinfo) -> datetime:
    # Add in UTC: the zone's clock may jump within the span.
    return (datetime.fromtimestamp(0, UTC) + ms * _MS).astimezone(zone)


def _ms(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // _MS
