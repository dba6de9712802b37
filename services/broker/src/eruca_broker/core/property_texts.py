"""Properties' texts as a matrix of bytes, and the arithmetic of Java's string hash on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eruca_broker.core.record_columns import LogBuffer, strided

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


def gather(buffer: LogBuffer, starts: Int64Array, sizes: Int64Array) -> UInt8Array:
    """Copy each row's bytes into a matrix; what lies beyond a row's size is arbitrary.

    Its width is a multiple of eight and more than the largest size.
    """
    words = strided(buffer, "=u8", 8)
    last = len(words) - 1
    width = (int(sizes.max()) // 8 + 1) * 8
    positions = starts[:, None] + np.arange(0, width, 8)
    is_inside = int(starts.max()) + width - 8 <= last
    gathered = words[positions if is_inside else np.minimum(positions, last)]
    matrix: UInt8Array = gathered.view(np.uint8)
    if not is_inside:
        # Where a word would reach past the buffer's end, its row is copied byte by byte.
        for row in np.flatnonzero(positions[:, -1] > last).tolist():
            start, size = int(starts[row]), int(sizes[row])
            matrix[row, :size] = np.frombuffer(buffer, np.uint8, size, start)
    return matrix
