"""Texts that differ in nothing but their values: most batches, and the fast way through them.

Producers lay out a batch's properties alike, and even the values share most characters: the ids of
one batch differ in their last few. So of texts of one size the smallest and the largest byte of
each column say it all. Where the two are equal, every text agrees with the first; the columns that
vary must lie within values and hold plain characters, and then every text reads like the first
one. A value's hash is the first one's plus what the varying columns add.

Source: RocketMQ 5.3, ``MessageDecoder.string2messageProperties``; Java's ``String.hashCode``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eruca.contract.hashing import string_hash
from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY
from eruca_broker.core.property_texts import (
    POWERS,
    ROW_BYTES_MAX,
    Int64Array,
    Keys,
    KeysAndTags,
    UInt8Array,
)

_PLAIN_MIN, _PLAIN_MAX = 0x21, 0x7E  # neither separator nor blank nor beyond ASCII
_FOLD_COUNT_MIN: Final = 64  # rows up to which one reduction is cheaper than folding; measured
_KEY: Final = re.compile(rb"[^ ]+")

UInt32Array: TypeAlias = NDArray[np.uint32]
Extent: TypeAlias = tuple[int, int]
"""Where a value begins and ends in its text."""


class AlikeTexts(NamedTuple):
    """Texts of one size, and the bounds of each of their columns."""

    rows: UInt8Array  # one row for each text
    low: UInt8Array  # one for each column
    high: UInt8Array

    @classmethod
    def of(cls, rows: UInt8Array) -> AlikeTexts:
        """Return the texts in *rows*."""
        return cls(rows, *column_bounds(rows))


def column_bounds(rows: UInt8Array) -> tuple[UInt8Array, UInt8Array]:
    """Return the smallest and the largest byte of each column."""
    low = high = rows
    # Half on half, which may overlap: long rows are cheaper for numpy than many.
    while (count := len(low)) > _FOLD_COUNT_MIN:
        half = (count + 1) // 2
        low = np.minimum(low[:half], low[count - half :])
        high = np.maximum(high[:half], high[count - half :])
    return np.minimum.reduce(low), np.maximum.reduce(high)


def hash_alike(texts: AlikeTexts) -> KeysAndTags | None:
    """Return tags and keys of the texts; None where they do not read alike, or not plainly."""
    first = texts.rows[0].tobytes()
    extents = _extents_of(first) if len(first) <= ROW_BYTES_MAX else None
    if extents is None:
        return None
    varying = np.flatnonzero(texts.low != texts.high)
    if len(varying) and not (extents and _is_plain(texts, varying, list(extents.values()))):
        return None
    tag, unique, keys = (extents.get(name.encode()) for name in (TAGS, UNIQ_KEY, KEYS))
    wanted = [unique] if unique else []
    if keys:
        wanted += (match.span() for match in _KEY.finditer(first, *keys))
    if not all(first[slice(*extent)].isascii() for extent in (*wanted, tag) if extent):
        return None
    count = len(texts.rows)
    tag_codes = np.zeros(count, np.int64)
    if tag:
        tag_codes[:] = _hashes(texts.rows, first, tag, varying).view(np.int32)
    hashes = np.empty((count, len(wanted)), np.uint32)
    for column, extent in enumerate(wanted):
        hashes[:, column] = _hashes(texts.rows, first, extent, varying)
    sizes = np.empty(hashes.shape, np.int64)
    sizes[:] = [end - start for start, end in wanted]
    keys_of_all = Keys(
        np.repeat(np.arange(count), len(wanted)), hashes.reshape(-1), sizes.reshape(-1)
    )
    return KeysAndTags(tag_codes, keys_of_all)


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


def _is_plain(texts: AlikeTexts, varying: Int64Array, extents: list[Extent]) -> bool:
    """Tell whether what varies is in values and is plain, so that all texts read like the first."""
    if texts.low[varying].min() < _PLAIN_MIN or texts.high[varying].max() > _PLAIN_MAX:
        return False
    # Values stand in order, so each varying column must lie between a start and its own end.
    starts, ends = np.array(extents).T
    begun, ended = (bounds.searchsorted(varying, side="right") for bounds in (starts, ends))
    return bool((begun == ended + 1).all())


def _hashes(rows: UInt8Array, first: bytes, extent: Extent, varying: Int64Array) -> UInt32Array:
    """Return Java's hash of the extent in each row; of length 1 if all are equal."""
    start, end = extent
    own = string_hash(first[start:end].decode("ascii")) & 0xFFFF_FFFF
    begin, stop = varying.searchsorted(extent)
    if begin == stop:
        return np.array([own], np.uint32)
    left, right = int(varying[begin]), int(varying[stop - 1]) + 1
    hashes: UInt32Array = (
        rows[:, left:right].astype(np.uint32) @ POWERS[end - right : end - left][::-1]
    )
    hashes += np.uint32(own - int(hashes[0]) & 0xFFFF_FFFF)
    return hashes
