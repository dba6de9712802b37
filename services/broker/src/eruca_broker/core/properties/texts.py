"""Properties' texts as a matrix of bytes, and the arithmetic of Java's string hash on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eruca.core.messages.record_columns import LogBuffer

Int64Array: TypeAlias = NDArray[np.int64]
UInt8Array: TypeAlias = NDArray[np.uint8]

ROW_BYTES_MAX: Final = 1024  # texts beyond it are read one by one
POWERS: Final = np.array([pow(31, n, 1 << 32) for n in range(ROW_BYTES_MAX + 8)], np.uint32)
# 31 is odd, so modulo 2 to the 32 it has an inverse: dividing is multiplying by that.
INVERSES: Final = np.array([pow(31, -n, 1 << 32) for n in range(ROW_BYTES_MAX + 8)], np.uint32)


class Keys(NamedTuple):
    """Keys of some texts: the unique id first, then each of KEYS."""

    rows: Int64Array  # which text, ascending
    hashes: NDArray[np.uint32]  # Java's hash of the key alone
    sizes: Int64Array  # UTF-16 units


class KeysAndTags(NamedTuple):
    """What is in some texts."""

    tag_codes: Int64Array  # one per text; 0 without a tag
    keys: Keys


def no_keys() -> Keys:
    """Return no keys."""
    empty = np.zeros(0, np.int64)
    return Keys(empty, empty.astype(np.uint32), empty)


def merge(parts: Sequence[Keys]) -> Keys:
    """Return the keys of several parts in the order of their texts; within one, as given."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return no_keys()
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")
    return Keys(
        rows[order],
        np.concatenate([part.hashes for part in parts])[order],
        np.concatenate([part.sizes for part in parts])[order],
    )


def utf16_size(text: str) -> int:
    """Return the length of *text* as Java counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def rows_at(buffer: LogBuffer, starts: Int64Array, width: int) -> UInt8Array:
    """Copy *width* bytes from each of *starts* on, all inside the buffer, into a matrix."""
    if not width:
        return np.empty((len(starts), 0), np.uint8)
    every = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer, strides=(1,))
    rows: UInt8Array = every[starts].view(np.uint8).reshape(len(starts), width)
    return rows


def gather(buffer: LogBuffer, starts: Int64Array, sizes: Int64Array) -> UInt8Array:
    """Copy each row's bytes into a matrix; what lies beyond a row's size is arbitrary.

    Its width is a multiple of eight and more than the largest size.
    """
    width = (int(sizes.max()) // 8 + 1) * 8
    last = len(buffer) - width
    if last >= 0 and int(starts.max()) <= last:
        return rows_at(buffer, starts, width)
    matrix = np.empty((len(starts), width), np.uint8)
    is_inside = starts <= last
    if is_inside.any():
        matrix[is_inside] = rows_at(buffer, starts[is_inside], width)
    # Where a row would reach past the buffer's end, it is copied by itself.
    for row in np.flatnonzero(~is_inside).tolist():
        start, size = int(starts[row]), int(sizes[row])
        matrix[row, :size] = np.frombuffer(buffer, np.uint8, size, start)
    return matrix
