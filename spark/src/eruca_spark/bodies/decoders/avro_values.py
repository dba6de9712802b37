"""Strict readers of Avro's binary encoding.

A reader takes a body and a position in it, and returns the value and the position behind it. It
raises BodyError for anything that a writer of the schema cannot have written. An ``IndexError`` or
``struct.error`` means that the body ends too early; the reader of a record names the field.

fastavro is not used: for an index below 0 it takes an enum's symbol or a union's branch from the
end of the list, it rounds decimals with too many digits, and its errors do not name the field.

Source: Apache Avro 1.12, specification, "Binary Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final
from uuid import UUID

from eruca_spark.bodies.decoders.errors import BodyError

Read = Callable[[bytes, int], tuple[Any, int]]

DECIMAL_DIGITS_MAX: Final = 38  # of Spark's and Parquet's decimals
ENDS: Final = "the body ends in it"
_EXACT: Final = Context(prec=DECIMAL_DIGITS_MAX)
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


def read_null(_body: bytes, at: int) -> tuple[None, int]:
    """Read a null, which has no bytes."""
    return None, at


def read_boolean(body: bytes, at: int) -> tuple[bool, int]:
    """Read a boolean."""
    byte = body[at]
    if byte > 1:
        raise BodyError(f"expected 0 or 1 for a boolean, found {byte}")
    return byte == 1, at + 1


def read_long(body: bytes, at: int) -> tuple[int, int]:
    """Read an integer of 64 bits."""
    byte = body[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number = byte & 0x7F
    shift = 7
    while True:
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise BodyError("expected an integer of at most 10 bytes")
    if number >> 64:
        raise BodyError("expected an integer of 64 bits")
    return (number >> 1) ^ -(number & 1), at


def read_int(body: bytes, at: int) -> tuple[int, int]:
    """Read an integer of 32 bits."""
    number, at = read_long(body, at)
    if not -_INT_MAX - 1 <= number <= _INT_MAX:
        raise BodyError(f"expected an integer of 32 bits, found {number}")
    return number, at


def read_millis(body: bytes, at: int) -> tuple[int, int]:
    """Read a time in milliseconds as microseconds."""
    number, at = read_long(body, at)
    if not -_LONG_MAX <= number * 1000 <= _LONG_MAX:
        raise BodyError(f"the time {number} ms is out of range")
    return number * 1000, at


def read_float(body: bytes, at: int) -> tuple[float, int]:
    """Read a floating-point number of 32 bits."""
    return struct.unpack_from("<f", body, at)[0], at + 4


def read_double(body: bytes, at: int) -> tuple[float, int]:
    """Read a floating-point number of 64 bits."""
    return struct.unpack_from("<d", body, at)[0], at + 8


def read_bytes(body: bytes, at: int) -> tuple[bytes, int]:
    """Read bytes behind their length."""
    size, at = read_long(body, at)
    end = at + size
    if not at <= end <= len(body):
        raise BodyError(f"expected at most {len(body) - at} bytes, found a length of {size}")
    return body[at:end], end


def read_string(body: bytes, at: int) -> tuple[str, int]:
    """Read a text."""
    text, at = read_bytes(body, at)
    try:
        return text.decode(), at
    except UnicodeDecodeError as error:
        raise BodyError("the text is not UTF-8") from error


def fixed_reader(size: int) -> Read:
    """Return the reader of *size* bytes."""

    def read(body: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(body):
            raise BodyError(ENDS)
        return body[at:end], end

    return read


def uuid_reader(read_value: Read) -> Read:
    """Return the reader of 16 bytes as the text of a UUID."""

    def read(body: bytes, at: int) -> tuple[str, int]:
        value, at = read_value(body, at)
        return str(UUID(bytes=value)), at

    return read


def decimal_reader(read_value: Read, precision: int, scale: int) -> Read:
    """Return the reader of a decimal in the bytes that *read_value* reads."""
    limit = 10**precision

    def read(body: bytes, at: int) -> tuple[Decimal, int]:
        value, at = read_value(body, at)
        unscaled = int.from_bytes(value, "big", signed=True)
        if not -limit < unscaled < limit:
            raise BodyError(f"expected a decimal of at most {precision} digits")
        return _EXACT.scaleb(Decimal(unscaled), -scale), at

    return read


def enum_reader(symbols: Sequence[str]) -> Read:
    """Return the reader of an enum as its symbol."""

    def read(body: bytes, at: int) -> tuple[str, int]:
        number, at = read_long(body, at)
        if not 0 <= number < len(symbols):
            raise BodyError(f"expected one of {len(symbols)} symbols, found number {number}")
        return symbols[number], at

    return read


def union_reader(branches: Sequence[Read]) -> Read:
    """Return the reader of a union."""

    def read(body: bytes, at: int) -> tuple[Any, int]:
        number, at = read_long(body, at)
        if not 0 <= number < len(branches):
            raise BodyError(f"expected one of {len(branches)} branches, found number {number}")
        return branches[number](body, at)

    return read


def member_reader(read_value: Read, name: str) -> Read:
    """Return the reader of a union's branch as the only member of a struct."""

    def read(body: bytes, at: int) -> tuple[dict[str, Any], int]:
        value, at = read_value(body, at)
        return {name: value}, at

    return read


class EmptyItems:
    """Counts the items without bytes in all arrays of a body.

    Such as nulls: a body's size does not limit them. In arrays of arrays, a damaged or malicious
    body could have billions of them, and end the process for lack of memory.
    """

    def __init__(self) -> None:
        self._count = 0

    def reset(self) -> None:
        """Begin with another body."""
        self._count = 0

    def add(self, count: int, body: bytes) -> None:
        """Count more items; raise BodyError if there are more of them than bytes."""
        self._count += count
        if self._count > len(body):
            raise BodyError(
                f"expected at most {len(body)} items without bytes, found {self._count}"
            )


def array_reader(read_item: Read, empty: EmptyItems) -> Read:
    """Return the reader of an array; items without bytes are counted in *empty*."""

    def read(body: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _read_block(body, at, len(items))
            if not count:
                return items, at
            start = at
            for _ in range(count):
                item, at = read_item(body, at)
                items.append(item)
            if at == start:
                empty.add(count, body)

    return read


def map_reader(read_value: Read) -> Read:
    """Return the reader of a map, as pairs; the last value of a repeated key counts."""

    def read(body: bytes, at: int) -> tuple[list[tuple[str, Any]], int]:
        pairs: dict[str, Any] = {}
        while True:
            count, at = _read_block(body, at, len(pairs))
            if not count:
                return [*pairs.items()], at
            for _ in range(count):
                key, at = read_string(body, at)
                pairs[key], at = read_value(body, at)

    return read


def record_reader(fields: Mapping[str, Read]) -> Read:
    """Return the reader of a record as a dictionary."""
    pairs = tuple(fields.items())

    def read(body: bytes, at: int) -> tuple[dict[str, Any], int]:
        values = {}
        name = ""
        try:
            for name, read_value in pairs:
                values[name], at = read_value(body, at)
        except BodyError as error:
            raise error.within(name) from error
        except (IndexError, struct.error) as error:
            raise BodyError(ENDS, (name,)) from error
        return values, at

    return read


def _read_block(body: bytes, at: int, count_before: int) -> tuple[int, int]:
    """Read the number of items that follow.

    A damaged number could be huge, and items without bytes (nulls) would not end it. So no array
    has more items than its body has bytes.
    """
    count, at = read_long(body, at)
    if count < 0:
        count = -count
        _, at = read_long(body, at)  # the size of the block, for readers that skip it
    if count_before + count > len(body):
        raise BodyError(f"expected at most {len(body)} items, found a number of {count}")
    return count, at
