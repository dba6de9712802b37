"""The hashes that RocketMQ stores and routes by: Java's ``String.hashCode`` and its relatives.

The broker needs them for the tag codes of consume queues and for the key index. The SDK needs them
to select a queue by sharding key and to filter by tag.

Source: ``String.hashCode``, ``IndexFile.indexKeyHashMethod``, ``SelectMessageQueueByHash``.
"""

from __future__ import annotations

from functools import lru_cache
from operator import mul
from typing import Final

_MASK: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000
_POWERS_SIZE: Final = 256
_POWERS: Final = tuple(pow(31, n, 1 << 32) for n in range(_POWERS_SIZE))


def string_hash(text: str) -> int:
    """Return Java's 32-bit ``hashCode`` of *text*: 31-polynomial over its UTF-16 code units."""
    units: bytes | memoryview
    if text.isascii():
        units = text.encode("ascii")
    else:
        # Java treats a lone surrogate like any other code unit.
        units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    return _signed(_polynomial(units))


def key_hash(topic: str, key: str) -> int:
    """Return the key index's hash of *key* in *topic*: ``|hash(topic#key)|``, 31 bits."""
    return index_hash(f"{topic}#{key}")


def index_hash(text: str) -> int:
    """Return ``|hashCode|`` as the index file stores it; 0 if it has no negation."""
    value = abs(string_hash(text))
    return 0 if value == _SIGN else value


@lru_cache(maxsize=4096)
def tags_code(tag: str) -> int:
    """Return a tag's code in the consume queue: its hash, sign-extended; 0 for no tag."""
    return string_hash(tag)


def long_hash(value: int) -> int:
    """Return Java's ``Long.hashCode``: high word xor low word, as a signed 32-bit number."""
    unsigned = value & 0xFFFF_FFFF_FFFF_FFFF
    return _signed((unsigned >> 32) ^ (unsigned & _MASK))


def truncating_remainder(dividend: int, divisor: int) -> int:
    """Return Java's ``dividend % divisor``, whose sign follows the dividend."""
    remainder = abs(dividend) % divisor
    return -remainder if dividend < 0 else remainder


def queue_of_hash(value: int, queue_count: int) -> int:
    """Return the queue that a hash selects: the magnitude of the truncating remainder."""
    return abs(truncating_remainder(value, queue_count))


def _polynomial(units: bytes | memoryview) -> int:
    size = len(units)
    if size <= _POWERS_SIZE:
        return sum(map(mul, units, _POWERS[size - 1 :: -1])) & _MASK if size else 0
    value = 0
    for unit in units:
        value = (31 * value + unit) & _MASK
    return value


def _signed(value: int) -> int:
    return value - (1 << 32) if value & _SIGN else value
