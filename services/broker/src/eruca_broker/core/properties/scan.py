"""Finding tags and keys in texts of any kind, by their separators, in all texts at once.

It keeps RocketMQ's reading: a property without a name or without a value does not count, of
several with one name the last one does, and the last needs no separator behind it.

Source: RocketMQ 5.3, ``MessageDecoder.string2messageProperties``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eruca.contract.hashing import string_hash
from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, split_keys
from eruca.core.messages.record_columns import strided
from eruca_broker.core.properties.texts import (
    INVERSES,
    POWERS,
    Int64Array,
    Keys,
    KeysAndTags,
    UInt8Array,
    merge,
    no_keys,
    utf16_size,
)


def scan(text: UInt8Array, sizes: Int64Array) -> KeysAndTags:
    """Return tags and keys of the texts in the rows of *text*, each of its own size.

    Args:
        text: A row for each text, at least one byte wider than the longest.
        sizes: Bytes of each; what lies behind in its row is arbitrary.
    """
    tag_codes = np.zeros(len(sizes), np.int64)
    width = text.shape[1]
    inside = np.arange(width, dtype=np.int16) < sizes.astype(np.int16)[:, None]
    ends_at = (text == 2) & inside
    # A text need not end with its separator: its end ends its last property all the same.
    ends_at[np.arange(len(sizes)), sizes] = True
    ends = np.flatnonzero(ends_at)
    separators = np.flatnonzero((text == 1) & inside)
    if not len(separators):
        return KeysAndTags(tag_codes, no_keys())
    row_of = ends // width
    begins = row_of * width
    np.maximum(begins[1:], ends[:-1] + 1, out=begins[1:])
    equals = separators[np.minimum(np.searchsorted(separators, begins), len(separators) - 1)]
    name_sizes = equals - begins
    proper = (name_sizes > 0) & (equals + 1 < ends)
    names_at = np.minimum(begins, text.size - 8)
    beyond = (begins - names_at).astype(np.uint64)  # bytes that the last words begin too early
    names = strided(text.reshape(-1), ">u8", 8)[names_at] << (beyond * np.uint64(8))
    values = _Values(text, row_of, equals + 1, ends)
    tags = _last_per_row(_named(names, name_sizes, TAGS, proper), row_of)
    unique = _last_per_row(_named(names, name_sizes, UNIQ_KEY, proper), row_of)
    keys = _last_per_row(_named(names, name_sizes, KEYS, proper), row_of)
    found = values.hashes(tags, split=False)
    tag_codes[found.rows] = found.hashes.view(np.int32)
    parts = (values.hashes(unique, split=False), values.hashes(keys, split=True))
    return KeysAndTags(tag_codes, merge(parts))


class _Values:
    """Property values within one gathered text, and the hashes of any of its stretches.

    With ``sums[r, j]`` the sum of the bytes of row r up to and with j, each times 31 to the power
    of its distance from the row's end, the hash of the bytes from s to e is the difference of two
    sums divided by 31 to the power of e's distance: one pass over the text serves all values.
    """

    def __init__(
        self,
        text: UInt8Array,
        row_of: Int64Array,
        starts: Int64Array,
        ends: Int64Array,
    ) -> None:
        self._text = text.reshape(-1)
        self._rows = row_of
        self._starts = starts
        self._ends = ends
        self._width = text.shape[1]
        sums = text * POWERS[self._width - 1 :: -1][: self._width]
        np.cumsum(sums, axis=1, out=sums)
        self._sums = sums.reshape(-1)
        self._awkward = np.flatnonzero(self._text >= 0x80)
        self._blanks = np.flatnonzero(self._text == 0x20)

    def hashes(self, chosen: Int64Array, *, split: bool) -> Keys:
        """Return row, hash and length of the chosen values, or of their blank-separated parts."""
        starts, ends, rows = self._starts[chosen], self._ends[chosen], self._rows[chosen]
        hashes = self._sums[ends - 1] - self._sums[starts - 1]  # a separator precedes every value
        hashes *= INVERSES[self._width - 1 - (ends - 1) % self._width]
        slow = _holds_any(self._awkward, starts, ends)
        if split:
            slow |= _holds_any(self._blanks, starts, ends)
        if not slow.any():
            return Keys(rows, hashes, ends - starts)
        more_rows, more_hashes, more_sizes = [], [], []
        for index in np.flatnonzero(slow).tolist():
            value = bytes(self._text[starts[index] : ends[index]]).decode("utf-8", "replace")
            for part in split_keys(value) if split else [value]:
                more_rows.append(rows[index])
                more_hashes.append(string_hash(part) & 0xFFFF_FFFF)
                more_sizes.append(utf16_size(part))
        plain = ~slow
        return Keys(
            np.concatenate((rows[plain], np.array(more_rows, np.int64))),
            np.concatenate((hashes[plain], np.array(more_hashes, np.uint32))),
            np.concatenate(((ends - starts)[plain], np.array(more_sizes, np.int64))),
        )


def _holds_any(positions: Int64Array, starts: Int64Array, ends: Int64Array) -> NDArray[np.bool_]:
    """Tell which stretches contain one of the ascending *positions*."""
    if not len(positions):
        return np.zeros(len(starts), np.bool_)
    holds: NDArray[np.bool_] = np.searchsorted(positions, starts) < np.searchsorted(positions, ends)
    return holds


def _named(
    words: NDArray[Any], sizes: Int64Array, name: str, proper: NDArray[np.bool_]
) -> Int64Array:
    """Return which properties are called *name* (of at most eight letters)."""
    shift = 8 * (8 - len(name))
    wanted = np.uint64(int.from_bytes(name.encode(), "big"))
    return np.flatnonzero(proper & (sizes == len(name)) & ((words >> np.uint64(shift)) == wanted))


def _last_per_row(chosen: Int64Array, row_of: Int64Array) -> Int64Array:
    """Keep the last of several properties of one name in a record: it is the one that counts."""
    if len(chosen) < 2:
        return chosen
    rows = row_of[chosen]
    is_last = np.ones(len(rows), np.bool_)
    is_last[:-1] = rows[1:] != rows[:-1]
    return chosen[is_last]
