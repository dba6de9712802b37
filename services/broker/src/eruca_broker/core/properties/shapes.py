"""Texts that differ in nothing but their values: most batches, and the fast way through them.

Producers lay out a batch's properties alike, and even the values share most characters: the ids of
one batch differ in their last few. So of texts of one size the smallest and the largest byte of
each column say it all. Where the two are equal, every text agrees with the first; the columns that
vary must lie within values and hold plain characters, and then every text reads like the first
one: that is their *shape*. A value's hash is the first one's plus what the varying columns add.

Source: RocketMQ 5.3, ``MessageDecoder.string2messageProperties``; Java's ``String.hashCode``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence, Set
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eruca.contract.hashing import string_hash, tags_code
from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY
from eruca_broker.core.properties.texts import (
    POWERS,
    ROW_BYTES_MAX,
    Int64Array,
    Keys,
    KeysAndTags,
    UInt8Array,
)

_PLAIN_MIN, _PLAIN_MAX = 0x21, 0x7E  # neither separator nor blank nor beyond ASCII
_FOLD_COUNT_MIN: Final = 64  # rows up to which one reduction is cheaper than folding; measured
_TAG, _UNIQUE, _KEYS = TAGS.encode(), UNIQ_KEY.encode(), KEYS.encode()
_KEY: Final = re.compile(rb"[^ ]+")

UInt32Array: TypeAlias = NDArray[np.uint32]
Extent: TypeAlias = tuple[int, int]
"""Where a value begins and ends in its text."""

Bounds: TypeAlias = tuple[UInt8Array, UInt8Array]
"""The smallest and the largest byte of each column."""


class Shape(NamedTuple):
    """What some texts have in common, and where they vary."""

    first: bytes  # the first text
    varying: list[int]  # columns, ascending; all in values
    names: Set[bytes]  # of all properties
    tag: Extent | None
    keys: list[Extent]  # the unique id first, then each of KEYS


class AlikeTexts(NamedTuple):
    """Texts of one size, the bounds of each of their columns, and what those tell."""

    rows: UInt8Array  # one row for each text
    low: UInt8Array  # one for each column
    high: UInt8Array
    shape: Shape | None  # None where they do not read alike, or not plainly

    @classmethod
    def of(cls, rows: UInt8Array, bounds: Bounds | None = None) -> AlikeTexts:
        """Return the texts in *rows*, whose columns' *bounds* may be known."""
        low, high = bounds or column_bounds(rows)
        return cls(rows, low, high, _shape_of(rows[0].tobytes(), low, high))

    @classmethod
    def joined(cls, parts: Sequence[AlikeTexts]) -> AlikeTexts:
        """Return the texts of all *parts*, which are of one size."""
        if len(parts) == 1:
            return parts[0]
        rows, low, high, _ = zip(*parts, strict=True)
        bounds = np.minimum.reduce(low), np.maximum.reduce(high)
        return cls.of(np.concatenate(rows), bounds)

    @property
    def size(self) -> int:
        """Bytes of all texts."""
        return self.rows.size

    def copy(self) -> AlikeTexts:
        """Return the same texts in memory of their own."""
        return self._replace(rows=self.rows.copy())


def column_bounds(rows: UInt8Array) -> Bounds:
    """Return the smallest and the largest byte of each column."""
    low = high = rows
    # Half on half, which may overlap: long rows are cheaper for numpy than many.
    while (count := len(low)) > _FOLD_COUNT_MIN:
        half = (count + 1) // 2
        low = np.minimum(low[:half], low[count - half :])
        high = np.maximum(high[:half], high[count - half :])
    return np.minimum.reduce(low), np.maximum.reduce(high)


def _shape_of(first: bytes, low: UInt8Array, high: UInt8Array) -> Shape | None:
    extents = _extents_of(first) if len(first) <= ROW_BYTES_MAX else None
    if extents is None:
        return None
    (columns,) = (low != high).nonzero()
    varying = columns.tolist()
    if varying:
        # They are few: as lists they are compared sooner than as arrays.
        lowest, highest = min(low[columns].tolist()), max(high[columns].tolist())
        if lowest < _PLAIN_MIN or highest > _PLAIN_MAX:
            return None
        if sum(len(_within(varying, extent)) for extent in extents.values()) < len(varying):
            return None
    tag, unique, keys = extents.get(_TAG), extents.get(_UNIQUE), extents.get(_KEYS)
    wanted = [unique] if unique else []
    if keys:
        wanted += [match.span() for match in _KEY.finditer(first, *keys)]
    if not first.isascii() and not all(
        first[start:end].isascii() for start, end in (*wanted, tag or (0, 0))
    ):
        return None
    return Shape(first, varying, extents.keys(), tag, wanted)


def tag_codes(texts: AlikeTexts, shape: Shape) -> Int64Array | int:
    """Return each text's tag code, or the one that all have; 0 without a tag."""
    if shape.tag is None:
        return 0
    if not _within(shape.varying, shape.tag):
        return tags_code(shape.first[slice(*shape.tag)].decode("ascii"))
    return _hashes(texts, shape, shape.tag).view(np.int32).astype(np.int64)


def key_hashes(texts: AlikeTexts, shape: Shape) -> tuple[UInt32Array, Int64Array]:
    """Return Java's hash of each key, a row for each text; and the keys' lengths."""
    hashes = np.empty((len(texts.rows), len(shape.keys)), np.uint32)
    for column, extent in enumerate(shape.keys):
        hashes[:, column] = _hashes(texts, shape, extent)
    return hashes, np.array([end - start for start, end in shape.keys], np.int64)


def hash_alike(texts: AlikeTexts) -> KeysAndTags | None:
    """Return tags and keys of the texts; None where they have no shape."""
    shape = texts.shape
    if shape is None:
        return None
    codes = np.empty(len(texts.rows), np.int64)
    codes[:] = tag_codes(texts, shape)
    hashes, sizes = key_hashes(texts, shape)
    rows = np.arange(len(texts.rows)).repeat(len(sizes))
    sizes_of_all = np.broadcast_to(sizes, hashes.shape).reshape(-1)
    return KeysAndTags(codes, Keys(rows, hashes.reshape(-1), sizes_of_all))


def _extents_of(text: bytes) -> dict[bytes, Extent] | None:
    """Return where each value stands; None for a text with oddities that scanning is for."""
    extents: dict[bytes, Extent] = {}
    position = 0
    while position < len(text):
        middle = text.find(b"\x01", position)
        end = text.find(b"\x02", position)
        name = text[position:middle]
        if not position < middle < end - 1 or name in extents:
            return None
        extents[name] = (middle + 1, end)
        position = end + 1
    return extents


def _within(varying: list[int], extent: Extent) -> list[int]:
    """Return the columns of *varying* that lie in the extent."""
    return varying[bisect_left(varying, extent[0]) : bisect_left(varying, extent[1])]


def _hashes(texts: AlikeTexts, shape: Shape, extent: Extent) -> UInt32Array:
    """Return Java's hash of the extent in each text; only one if all are equal."""
    start, end = extent
    own = string_hash(shape.first[start:end].decode("ascii"))
    varying = _within(shape.varying, extent)
    if not varying:
        return np.array([own & 0xFFFF_FFFF], np.uint32)
    left, right = varying[0], varying[-1] + 1
    weights = POWERS[end - right : end - left][::-1]
    hashes: UInt32Array = texts.rows[:, left:right].astype(np.uint32) @ weights
    hashes += np.uint32((own - int(hashes[0])) & 0xFFFF_FFFF)
    return hashes
