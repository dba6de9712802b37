"""Hashes of keys, by which PostgreSQL finds rows; each hit is then compared with the key itself.

The hash of a key in a topic is a number of 32 bits, never 0: a polynomial over the key's bytes and
its length, with the topic's number mixed in. It is stored, so it must not change.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from eruca_query.core.property_values import Slices

NO_KEY: Final = 0
_BASE: Final = 0x9E37_79B9_7F4A_7C15  # odd, so that it has an inverse
_MIX: Final = np.uint64(0xBF58_476D_1CE4_E5B9)
_MASK: Final = (1 << 64) - 1
_WIDTH_MAX: Final = 128  # bytes of keys that are hashed in one step
_ROWS: Final = 4_096  # of them at a time; bounds the arrays
_POWERS: Final = np.array([pow(_BASE, n, 1 << 64) for n in range(1, _WIDTH_MAX + 1)], np.uint64)


def hash_keys(keys: Slices, topic_numbers: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the hash of each row's key in its topic; 0 for a row without a key."""
    sums = np.zeros(len(keys.starts), np.uint64)
    for first in range(0, len(sums), _ROWS):
        rows = np.arange(first, min(first + _ROWS, len(sums)))
        sizes = keys.sizes[rows]
        width = int(sizes.max(initial=0))
        if width > _WIDTH_MAX:
            for row in rows[sizes > _WIDTH_MAX].tolist():
                sums[row] = _sum_of(keys.value(row))
            rows = rows[sizes <= _WIDTH_MAX]
            sizes = keys.sizes[rows]
            width = int(sizes.max(initial=0))
        if width:
            sums[rows] = _sums(keys.data, keys.starts[rows], sizes, width)
    hashes = _mixed(sums, keys.sizes, topic_numbers)
    hashes[keys.sizes == 0] = NO_KEY
    return hashes


def key_hash(topic_number: int, key: bytes) -> int:
    """Return the hash of one key."""
    data = np.frombuffer(key, np.uint8)
    one = Slices(data, np.zeros(1, np.int64), np.array([len(key)], np.int64))
    return int(hash_keys(one, np.array([topic_number], np.int64))[0])


def _sums(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    width: int,
) -> NDArray[np.uint64]:
    places = np.arange(width)
    inside = places < sizes[:, None]
    at = np.where(inside, starts[:, None] + places, 0)
    letters = np.where(inside, data[at], 0).astype(np.uint64)
    sums: NDArray[np.uint64] = (letters * _POWERS[:width]).sum(axis=1, dtype=np.uint64)
    return sums


def _sum_of(key: bytes) -> int:
    power, total = 1, 0
    for letter in key:
        power = power * _BASE & _MASK
        total = (total + letter * power) & _MASK
    return total


def _mixed(
    sums: NDArray[np.uint64], sizes: NDArray[np.int64], topic_numbers: NDArray[np.int64]
) -> NDArray[np.int32]:
    mixed = sums + sizes.astype(np.uint64)
    mixed ^= topic_numbers.astype(np.uint64) << np.uint64(32)
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MIX
    mixed ^= mixed >> np.uint64(32)
    low = (mixed & np.uint64(0xFFFF_FFFF)).astype(np.uint32)
    low[low == NO_KEY] = 1
    return low.view(np.int32)
