"""Columns of many records at once: what the projections need to know, read from the log's bytes.

The consume queues' tag codes and the key index's hashes come from here and only from here, when a
message is stored as well as when a projection is rebuilt: so a rebuilt projection is the same as
the one it replaces, whoever wrote the record and in whatever order its properties stand.

All of it is numpy over unaligned views: no Python per message. Rows that need more than ASCII
arithmetic (a tag in Chinese, several keys in one KEYS) are finished one by one.

Source: RocketMQ 5.3, ``CommitLog.checkMessageAndReturnSize``, ``IndexService.buildIndex``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eruca.contract.hashing import string_hash
from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, split_keys
from eruca.contract.records import MAGIC_V2, RecordLayout, SysFlag

Int64Array: TypeAlias = NDArray[np.int64]
UInt8Array: TypeAlias = NDArray[np.uint8]
LogBuffer: TypeAlias = Any  # bytes, bytearray, mmap or memoryview over a stretch of the log

_SCAN_BYTES_MAX: Final = 4 * 1024 * 1024  # of property text scanned at once; bounds the arrays
_ROW_BYTES_MAX: Final = 1024  # property texts beyond it are read one by one
_POWERS: Final = np.array([pow(31, n, 1 << 32) for n in range(_ROW_BYTES_MAX + 8)], np.uint32)
# 31 is odd, so modulo 2 to the 32 it has an inverse: dividing is multiplying by that.
_INVERSES: Final = np.array([pow(31, -n, 1 << 32) for n in range(_ROW_BYTES_MAX + 8)], np.uint32)


@dataclass(slots=True)
class RecordColumns:
    """Fields of n records, in log order. ``starts`` count from the start of the buffer."""

    buffer: LogBuffer
    starts: Int64Array
    sizes: Int64Array
    queue_ids: Int64Array
    queue_offsets: Int64Array
    log_offsets: Int64Array
    sys_flags: Int64Array
    store_timestamps: Int64Array
    body_starts: Int64Array
    body_sizes: Int64Array
    topic_starts: Int64Array
    topic_sizes: Int64Array
    properties_starts: Int64Array
    properties_sizes: Int64Array

    def topics(self) -> list[bytes]:
        """Return each record's topic."""
        view = memoryview(self.buffer)
        ends = self.topic_starts + self.topic_sizes
        return [
            bytes(view[start:end])
            for start, end in zip(self.topic_starts.tolist(), ends.tolist(), strict=True)
        ]

    def is_queued(self) -> NDArray[np.bool_]:
        """Tell which records appear in a consume queue: all but prepared and rolled back ones."""
        queued: NDArray[np.bool_] = (self.sys_flags & SysFlag.PREPARED) == 0
        return queued

    def is_indexed(self) -> NDArray[np.bool_]:
        """Tell which records' keys are indexed: all but rolled back ones."""
        indexed: NDArray[np.bool_] = (self.sys_flags & SysFlag.ROLLBACK) != SysFlag.ROLLBACK
        return indexed


@dataclass(slots=True)
class PropertyHashes:
    """What the projections take from n records' properties.

    ``key_rows`` and ``key_hashes`` have one element per key: the unique id first, then each of
    KEYS; ``key_sizes`` is its length in UTF-16 units, which its place behind ``topic#`` needs.
    """

    tag_codes: Int64Array  # n; 0 without a tag
    key_rows: Int64Array  # k, ascending
    key_hashes: NDArray[np.uint32]  # k; Java's hash of the key alone
    key_sizes: Int64Array  # k


def read_columns(buffer: LogBuffer, starts: Int64Array) -> RecordColumns:
    """Return the columns of the records at *starts*, whose sizes and magics are known to be good.

    The lengths inside a record are taken as they stand; :func:`sound_structure` tells whether they
    add up.
    """
    words = _strided(buffer, ">i8", 8)
    halves = _strided(buffer, ">i4", 4)
    head = words[starts].astype(np.int64)
    sizes = head >> 32
    two_byte_topic = (head & 0xFFFF_FFFF) == MAGIC_V2
    flags = halves[starts + RecordLayout.SYS_FLAG].astype(np.int64)
    born_extra = np.where(flags & SysFlag.BORN_HOST_V6, 12, 0)
    store_extra = np.where(flags & SysFlag.STORE_HOST_V6, 12, 0)
    body_size_at = starts + 84 + born_extra + store_extra
    body_sizes = halves[_inside(body_size_at, starts, sizes - 2)].astype(np.int64)
    body_starts = body_size_at + 4
    body_ends = _inside(body_starts + body_sizes, starts, sizes)
    # One or two bytes of length: the low bytes of the four that end there.
    topic_starts = body_ends + np.where(two_byte_topic, 2, 1)
    topic_lengths = halves[topic_starts - 4].astype(np.int64)
    topic_sizes = topic_lengths & np.where(two_byte_topic, 0xFFFF, 0xFF)
    topic_ends = _inside(topic_starts + topic_sizes, starts, sizes)
    return RecordColumns(
        buffer=buffer,
        starts=starts,
        sizes=sizes,
        queue_ids=halves[starts + RecordLayout.QUEUE_ID].astype(np.int64),
        queue_offsets=words[starts + RecordLayout.QUEUE_OFFSET].astype(np.int64),
        log_offsets=words[starts + RecordLayout.LOG_OFFSET].astype(np.int64),
        sys_flags=flags,
        store_timestamps=words[starts + 56 + born_extra].astype(np.int64),
        body_starts=body_starts,
        body_sizes=body_sizes,
        topic_starts=topic_starts,
        topic_sizes=topic_sizes,
        properties_starts=topic_ends + 2,
        properties_sizes=halves[topic_ends - 2].astype(np.int64) & 0xFFFF,
    )


def sound_structure(columns: RecordColumns) -> NDArray[np.bool_]:
    """Tell of which records the parts add up exactly to the whole."""
    ends = columns.properties_starts + columns.properties_sizes
    sound: NDArray[np.bool_] = (
        (columns.body_sizes >= 0)
        & (columns.topic_starts + columns.topic_sizes + 2 == columns.properties_starts)
        & (ends == columns.starts + columns.sizes)
    )
    return sound


def hash_properties(columns: RecordColumns) -> PropertyHashes:
    """Return tag codes and key hashes of all records."""
    count = len(columns.starts)
    sizes = columns.properties_sizes
    wide = sizes > _ROW_BYTES_MAX
    rows_max = max(1, _SCAN_BYTES_MAX // (int(sizes[~wide].max(initial=0)) + 8))
    tag_codes = np.zeros(count, np.int64)
    parts: list[tuple[Int64Array, NDArray[np.uint32], Int64Array]] = []
    for first in range(0, count, rows_max):
        rows = np.arange(first, min(first + rows_max, count))
        rows = rows[~wide[rows]]
        if len(rows):
            parts.append(_scan(columns, rows, tag_codes))
    slow = np.flatnonzero(wide)
    if len(slow):
        parts.append(_read_each(columns, slow, tag_codes))
    if not parts:
        empty = np.zeros(0, np.int64)
        return PropertyHashes(tag_codes, empty, empty.astype(np.uint32), empty)
    key_rows = np.concatenate([part[0] for part in parts])
    order = np.argsort(key_rows, kind="stable")
    return PropertyHashes(
        tag_codes,
        key_rows[order],
        np.concatenate([part[1] for part in parts])[order],
        np.concatenate([part[2] for part in parts])[order],
    )


def index_hashes(
    prefix_hashes: NDArray[np.uint32], key_hashes: NDArray[np.uint32], key_sizes: Int64Array
) -> Int64Array:
    """Return ``|hash(topic#key)|`` from the hashes of ``topic#`` and of the key.

    Args:
        prefix_hashes: Java's hash of ``topic#``, one per key.
        key_hashes: Java's hash of each key.
        key_sizes: Each key's length in UTF-16 units.
    """
    if len(key_sizes) and int(key_sizes.max()) >= len(_POWERS):
        powers = np.array([pow(31, int(size), 1 << 32) for size in key_sizes], np.uint32)
    else:
        powers = _POWERS[key_sizes]
    signed = (prefix_hashes * powers + key_hashes).view(np.int32).astype(np.int64)
    magnitude: Int64Array = np.abs(signed)
    magnitude[magnitude == 1 << 31] = 0  # Java's abs leaves the smallest number negative
    return magnitude


def _scan(
    columns: RecordColumns, rows: Int64Array, tag_codes: Int64Array
) -> tuple[Int64Array, NDArray[np.uint32], Int64Array]:
    """Find the properties of *rows* by their separators, all rows at once."""
    sizes = columns.properties_sizes[rows]
    text = _gather(columns.buffer, columns.properties_starts[rows], sizes)
    width = text.shape[1]
    inside = np.arange(width, dtype=np.int16) < sizes.astype(np.int16)[:, None]
    ends_at = (text == 2) & inside
    # A text need not end with its separator: its end ends its last property all the same.
    ends_at[np.arange(len(rows)), sizes] = True
    ends = np.flatnonzero(ends_at)
    separators = np.flatnonzero((text == 1) & inside)
    if not len(separators):
        empty = np.zeros(0, np.int64)
        return empty, empty.astype(np.uint32), empty
    row_of = ends // width
    begins = row_of * width
    np.maximum(begins[1:], ends[:-1] + 1, out=begins[1:])
    equals = separators[np.minimum(np.searchsorted(separators, begins), len(separators) - 1)]
    name_sizes = equals - begins
    proper = (name_sizes > 0) & (equals + 1 < ends)
    names = _strided(text.reshape(-1), ">u8", 8)[np.minimum(begins, text.size - 8)]
    values = _Values(text, rows, row_of, equals + 1, ends)
    tags = _last_per_row(_named(names, name_sizes, TAGS, proper), row_of)
    unique = _last_per_row(_named(names, name_sizes, UNIQ_KEY, proper), row_of)
    keys = _last_per_row(_named(names, name_sizes, KEYS, proper), row_of)
    tag_rows, tag_hashes, _ = values.hashes(tags, split=False)
    tag_codes[tag_rows] = tag_hashes.view(np.int32)
    unique_part, keys_part = values.hashes(unique, split=False), values.hashes(keys, split=True)
    return (
        np.concatenate((unique_part[0], keys_part[0])),
        np.concatenate((unique_part[1], keys_part[1])),
        np.concatenate((unique_part[2], keys_part[2])),
    )


class _Values:
    """Property values within one gathered text, and the hashes of any of its stretches.

    With ``sums[r, j]`` the sum of the bytes of row r up to and with j, each times 31 to the power
    of its distance from the row's end, the hash of the bytes from s to e is the difference of two
    sums divided by 31 to the power of e's distance: one pass over the text serves all values.
    """

    def __init__(
        self,
        text: UInt8Array,
        rows: Int64Array,
        row_of: Int64Array,
        starts: Int64Array,
        ends: Int64Array,
    ) -> None:
        self._text = text.reshape(-1)
        self._rows = rows[row_of]
        self._starts = starts
        self._ends = ends
        self._width = text.shape[1]
        sums = text * _POWERS[self._width - 1 :: -1][: self._width]
        np.cumsum(sums, axis=1, out=sums)
        self._sums = sums.reshape(-1)
        self._awkward = np.flatnonzero(self._text >= 0x80)
        self._blanks = np.flatnonzero(self._text == 0x20)

    def hashes(
        self, chosen: Int64Array, *, split: bool
    ) -> tuple[Int64Array, NDArray[np.uint32], Int64Array]:
        """Return row, hash and length of the chosen values, or of their blank-separated parts."""
        starts, ends, rows = self._starts[chosen], self._ends[chosen], self._rows[chosen]
        hashes = self._sums[ends - 1] - self._sums[starts - 1]  # a separator precedes every value
        hashes *= _INVERSES[self._width - 1 - (ends - 1) % self._width]
        slow = _holds_any(self._awkward, starts, ends)
        if split:
            slow |= _holds_any(self._blanks, starts, ends)
        if not slow.any():
            return rows, hashes, ends - starts
        more_rows, more_hashes, more_sizes = [], [], []
        for index in np.flatnonzero(slow).tolist():
            value = bytes(self._text[starts[index] : ends[index]]).decode("utf-8", "replace")
            for part in split_keys(value) if split else [value]:
                more_rows.append(rows[index])
                more_hashes.append(string_hash(part) & 0xFFFF_FFFF)
                more_sizes.append(_utf16_size(part))
        plain = ~slow
        return (
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


def _read_each(
    columns: RecordColumns, rows: Int64Array, tag_codes: Int64Array
) -> tuple[Int64Array, NDArray[np.uint32], Int64Array]:
    from_rows, hashes, sizes = [], [], []
    view = memoryview(columns.buffer)
    for row in rows.tolist():
        start = int(columns.properties_starts[row])
        text = bytes(view[start : start + int(columns.properties_sizes[row])])
        tag, keys = tag_and_keys(text)
        tag_codes[row] = string_hash(tag) if tag else 0
        for key in keys:
            from_rows.append(row)
            hashes.append(string_hash(key) & 0xFFFF_FFFF)
            sizes.append(_utf16_size(key))
    return np.array(from_rows, np.int64), np.array(hashes, np.uint32), np.array(sizes, np.int64)


def tag_and_keys(properties: bytes) -> tuple[str | None, list[str]]:
    """Return a record's tag, and its keys with the unique id first."""
    found: dict[bytes, str] = {}
    for fragment in properties.split(b"\x02"):
        name, _, value = fragment.partition(b"\x01")
        if value and name in (b"TAGS", b"KEYS", b"UNIQ_KEY"):
            found[name] = value.decode("utf-8", "replace")
    unique = found.get(b"UNIQ_KEY")
    keys = split_keys(found.get(b"KEYS"))
    return found.get(b"TAGS"), [unique, *keys] if unique else keys


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


def _gather(buffer: LogBuffer, starts: Int64Array, sizes: Int64Array) -> UInt8Array:
    """Copy each row's bytes into a matrix; what lies beyond a row's size is arbitrary.

    Its width is a multiple of eight and more than the largest size.
    """
    words = _strided(buffer, "=u8", 8)
    width = (int(sizes.max()) // 8 + 1) * 8
    positions = starts[:, None] + np.arange(0, width, 8)
    last = len(words) - 1
    is_inside = int(starts.max()) + width - 8 <= last
    gathered = words[positions if is_inside else np.minimum(positions, last)]
    matrix: UInt8Array = gathered.view(np.uint8)
    if not is_inside:
        # Where a word would reach past the buffer's end, its row is copied byte by byte.
        for row in np.flatnonzero(positions[:, -1] > last).tolist():
            start, size = int(starts[row]), int(sizes[row])
            matrix[row, :size] = np.frombuffer(buffer, np.uint8, size, start)
    return matrix


def _inside(positions: Int64Array, starts: Int64Array, sizes: Int64Array) -> Int64Array:
    """Keep positions within their records, so that a damaged length cannot lead astray."""
    clipped: Int64Array = np.minimum(np.maximum(positions, starts + 4), starts + sizes - 2)
    return clipped


def _utf16_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _strided(buffer: LogBuffer, dtype: str, size: int) -> NDArray[Any]:
    view: NDArray[Any] = np.ndarray((len(buffer) - size + 1,), dtype, buffer, strides=(1,))
    return view
