"""Find tags, keys and unique ids in the properties of many records at once.

The parsing is RocketMQ's. A property without a name or a value is ignored. If a name occurs several
times, the last value counts. The last property needs no separator after it.

Source: RocketMQ 5.3, ``MessageDecoder.string2messageProperties``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eruca.contract.properties import (
    KEYS,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    TAGS,
    UNIQ_KEY,
)
from eruca.core.messages.record_columns import Int64Array, strided

_END: Final = ord(PROPERTY_SEPARATOR)
_WORD: Final = 8  # leading bytes of a property that are compared in one step


class Slices(NamedTuple):
    """A stretch of bytes for each row; of size 0 for a row without one."""

    data: NDArray[np.uint8]
    starts: Int64Array
    sizes: Int64Array

    def value(self, row: int) -> bytes:
        """Return the bytes of one row."""
        start = int(self.starts[row])
        return self.data[start : start + int(self.sizes[row])].tobytes()

    def of_rows(self, rows: Int64Array | NDArray[np.bool_]) -> Slices:
        """Return the stretches of some rows."""
        return Slices(self.data, self.starts[rows], self.sizes[rows])


@dataclass(frozen=True, slots=True)
class PropertyValues:
    """The properties by which messages can be found."""

    tags: Slices
    keys: Slices
    unique_ids: Slices


def find_values(data: NDArray[np.uint8], starts: Int64Array, sizes: Int64Array) -> PropertyValues:
    """Locate the values.

    Args:
        data: The bytes that contain the properties.
        starts: The position of each record's properties.
        sizes: Their sizes in bytes.
    """
    if not len(starts):
        data = data[:0]
    else:
        low = int(starts.min())  # the properties of a few records may be asked for
        data, starts = data[low : int((starts + sizes).max())], starts - low
    fragments = _fragments(data, starts, starts + sizes)
    return PropertyValues(
        tags=_values(data, fragments, TAGS, len(starts)),
        keys=_values(data, fragments, KEYS, len(starts)),
        unique_ids=_values(data, fragments, UNIQ_KEY, len(starts)),
    )


class _Fragments(NamedTuple):
    """Properties in order: the row, begin and end of each, and its first bytes."""

    rows: Int64Array
    begins: Int64Array
    ends: Int64Array
    words: NDArray[np.uint64]


def _fragments(data: NDArray[np.uint8], starts: Int64Array, ends: Int64Array) -> _Fragments:
    # Bodies may contain the separator, too: only those within properties count.
    separators = np.flatnonzero(data == _END)
    first = np.searchsorted(separators, starts)
    counts = np.searchsorted(separators, ends) - first
    is_open = np.zeros(len(starts), np.int64)  # 1: bytes follow the last separator
    has_text = ends > starts
    is_open[has_text] = data[ends[has_text] - 1] != _END
    totals = counts + is_open
    rows = np.repeat(np.arange(len(starts)), totals)
    row_begins = np.cumsum(totals) - totals
    places = np.arange(len(rows)) - row_begins[rows]  # number of the fragment within its row
    if len(separators):
        nth = np.minimum(first[rows] + places, len(separators) - 1)
        fragment_ends = np.where(places < counts[rows], separators[nth], ends[rows])
    else:
        fragment_ends = ends[rows]
    begins = starts[rows]
    is_later = places > 0
    begins[is_later] = fragment_ends[np.flatnonzero(is_later) - 1] + 1
    # A fragment too near to the end of the data for a whole word can hold a name and a value only
    # if it is shorter than a word. So the last bytes are read from a padded copy.
    padded = np.concatenate((data[-_WORD:], np.zeros(_WORD, np.uint8)))
    near_end = begins > len(data) - _WORD
    words = np.zeros(len(begins), np.uint64)
    if len(data) >= _WORD:
        words[~near_end] = strided(data, ">u8", _WORD)[begins[~near_end]]
    tail = len(data) - min(len(data), _WORD)
    words[near_end] = strided(padded, ">u8", _WORD)[begins[near_end] - tail]
    return _Fragments(rows, begins, fragment_ends, words)


def _values(data: NDArray[np.uint8], fragments: _Fragments, name: str, count: int) -> Slices:
    wanted = (name + NAME_SEPARATOR).encode()
    head = wanted[:_WORD]
    shift = np.uint64(8 * (_WORD - len(head)))
    found = (fragments.words >> shift) == np.uint64(int.from_bytes(head, "big"))
    found &= fragments.ends - fragments.begins > len(wanted)  # its value is not empty
    chosen = np.flatnonzero(found)
    for at in range(_WORD, len(wanted)):
        chosen = chosen[data[fragments.begins[chosen] + at] == wanted[at]]
    starts, sizes = np.zeros(count, np.int64), np.zeros(count, np.int64)
    # The last of several counts: later assignments overwrite earlier ones.
    rows = fragments.rows[chosen]
    starts[rows] = fragments.begins[chosen] + len(wanted)
    sizes[rows] = (fragments.ends - fragments.begins)[chosen] - len(wanted)
    return Slices(data, starts, sizes)
