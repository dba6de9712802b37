"""Texts that differ in nothing but their values: most batches, and the fast way through them.

Producers lay out a batch's properties alike. So the first text of a length says where names,
separators and values stand; one masked comparison finds out whether all others agree, and one
matrix product then hashes every value of every text.

The product is taken in floating point, which has the fast kernels: bytes times 16-bit halves of
the powers of 31 sum to far less than 2 to the 53, so it is exact.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY
from eruca_broker.core.property_texts import (
    POWERS,
    Int64Array,
    Keys,
    KeysAndTags,
    UInt8Array,
    no_keys,
)

_FILLER = 0x7F  # behind a text's end: neither a separator nor beyond ASCII

Extent = tuple[int, int]
"""Where a value begins and ends in its text."""


class _Shape(NamedTuple):
    tag: Extent | None
    unique: Extent | None
    keys: Extent | None
    separator_count: int
    mask: NDArray[np.uint64]  # ones where names and separators stand

    @property
    def extents(self) -> list[Extent]:
        return [extent for extent in (self.tag, self.unique, self.keys) if extent is not None]


def hash_alike(text: UInt8Array, size: int) -> KeysAndTags | None:
    """Return tags and keys of texts of one shape; None where they are not alike, or not plain.

    Args:
        text: A row for each text, a multiple of eight wide; bytes behind *size* are overwritten.
        size: Bytes of every text.
    """
    shape = _shape_of(bytes(text[0, :size]), text.shape[1])
    if shape is None:
        return None
    text[:, size:] = _FILLER
    words = text.view(np.uint64)
    alike = ((words ^ words[0]) & shape.mask) == 0
    if (
        not alike.all()
        or np.count_nonzero(text <= 2) != len(text) * shape.separator_count
        or (text >= 0x80).any()
    ):
        return None
    if shape.keys is not None and (text[:, slice(*shape.keys)] == 0x20).any():
        return None  # several keys in one
    count = len(text)
    hashes = iter(_hashes(text, tuple(shape.extents)))
    tag_codes = np.zeros(count, np.int64)
    if shape.tag is not None:
        tag_codes[:] = next(hashes).view(np.int32)
    keys = [extent for extent in (shape.unique, shape.keys) if extent is not None]
    if not keys:
        return KeysAndTags(tag_codes, no_keys())
    return KeysAndTags(
        tag_codes,
        Keys(
            np.repeat(np.arange(count), len(keys)),
            np.stack(list(hashes), axis=1).reshape(-1),
            np.tile(np.array([end - start for start, end in keys], np.int64), count),
        ),
    )


def _shape_of(text: bytes, width: int) -> _Shape | None:
    """Return the shape of one text; None where it has oddities that scanning is for."""
    extents: dict[bytes, Extent] = {}
    fixed = np.zeros(width, np.uint8)
    position = 0
    separator_count = 0
    while position < len(text):
        end = text.find(b"\x02", position)
        middle = text.find(b"\x01", position)
        name = text[position:middle]
        if not position < middle < end - 1 or name in extents:
            return None
        fixed[position : middle + 1] = 0xFF
        fixed[end] = 0xFF
        extents[name] = (middle + 1, end)
        separator_count += 2
        position = end + 1
    return _Shape(
        extents.get(TAGS.encode()),
        extents.get(UNIQ_KEY.encode()),
        extents.get(KEYS.encode()),
        separator_count,
        fixed.view(np.uint64),
    )


def _hashes(text: UInt8Array, extents: tuple[Extent, ...]) -> list[NDArray[np.uint32]]:
    """Return Java's hash of each extent of each text."""
    if not extents:
        return []
    halves = (text.astype(np.float64) @ _weights(extents, text.shape[1])).astype(np.int64)
    whole = (halves[:, ::2] + (halves[:, 1::2] << 16)).astype(np.uint32)
    return list(whole.T)


@lru_cache(maxsize=256)
def _weights(extents: tuple[Extent, ...], width: int) -> NDArray[np.float64]:
    """Return the powers of 31 for each extent: a column of low and one of high halves."""
    weights = np.zeros((width, 2 * len(extents)))
    for column, (start, end) in enumerate(extents):
        powers: Int64Array = POWERS[: end - start][::-1].astype(np.int64)
        weights[start:end, 2 * column] = powers & 0xFFFF
        weights[start:end, 2 * column + 1] = powers >> 16
    return weights
