"""Look up single properties of a record in the log.

A filter on properties needs one or two of them, of many records. Only these are searched for in the
text; the others are neither split nor decoded. The rules are RocketMQ's: of several properties with
one name the last counts, and a property without a value does not count.

Source: RocketMQ 5.3, ``MessageDecoder.string2messageProperties``, ``MessageEvaluationContext``.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from eruca.contract.properties import NAME_SEPARATOR, PROPERTY_SEPARATOR
from eruca.contract.records import MAGIC_V2, RecordLayout, layout_of

_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()
_U32: Final = struct.Struct(">I")
_MAGIC_AT: Final = 4
_HOST_BITS_AT: Final = RecordLayout.SYS_FLAG + 3  # the flag's lowest byte
_NAMES_MAX: Final = 1_024  # searched names kept encoded


class StoredProperties:
    """The properties in a stored text; a filter needs only ``get``."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        self._text = _SEPARATOR + text  # so that a separator stands before every name

    @property
    def size(self) -> int:
        """Return the number of bytes that are searched for a property."""
        return len(self._text)

    def get(self, name: str, /) -> str | None:
        """Return a property's value; None if there is none of this name."""
        needle = _needle(name)
        end = len(self._text)
        while (found := self._text.rfind(needle, 0, end)) >= 0:
            start = found + len(needle)
            stop = self._text.find(_SEPARATOR, start)
            value = self._text[start : stop if stop >= 0 else None]
            if value:
                return _decoded(value)
            end = found + 1  # it has no value, an earlier one may; the two may share a separator
        return None


def stored_properties(record: memoryview) -> StoredProperties:
    """Return the properties of *record*; none if damage makes them impossible to find."""
    (magic,) = _U32.unpack_from(record, _MAGIC_AT)
    layout = layout_of(record[_HOST_BITS_AT])
    (body_size,) = _U32.unpack_from(record, layout.body_size)
    at = layout.body + body_size
    head_size = 2 if magic == MAGIC_V2 else 1
    at += head_size + int.from_bytes(record[at : at + head_size])
    return StoredProperties(bytes(record[at + 2 :]))


@lru_cache(_NAMES_MAX)
def _needle(name: str) -> bytes:
    return f"{PROPERTY_SEPARATOR}{name}{NAME_SEPARATOR}".encode("utf-8", "surrogatepass")


def _decoded(value: bytes) -> str:
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return value.decode("utf-8", "replace")  # a producer's mistake; the message can be read
