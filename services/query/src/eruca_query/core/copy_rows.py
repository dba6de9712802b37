"""Rows in PostgreSQL's binary COPY format, assembled for many rows at once.

A row is the number of its fields, 16 bits, and for each field its size, 32 bits, and its bytes, all
big-endian. Fields of fixed size come first here and form one matrix; those of variable size follow.

Source: PostgreSQL 18, COPY, "Binary Format".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from eruca_query.core.property_values import Slices

COPY_HEAD: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
COPY_END: Final = b"\xff\xff"
_SIZE: Final = 4  # bytes of a field's size
_ROWS: Final = 4_096  # assembled at a time; bounds the arrays


class RowFormat:
    """The fixed fields of a row.

    Args:
        fields: Name and numpy type of each fixed field, big-endian.
        texts: The number of fields of variable size that follow.
    """

    def __init__(self, fields: Sequence[tuple[str, str]], *, texts: int) -> None:
        parts: list[tuple[str, str]] = [("_count", ">i2")]
        for name, kind in fields:
            parts += [(f"_{name}", ">i4"), (name, kind)]
        self.names = tuple(name for name, _ in fields)
        self._dtype = np.dtype(parts)
        self._texts = texts

    def fixed(self, count: int, values: dict[str, Any]) -> NDArray[np.uint8]:
        """Return the fixed part of *count* rows, as a matrix of bytes."""
        assert values.keys() == set(self.names), "a field would hold whatever memory did"
        rows = np.empty(count, self._dtype)
        rows["_count"] = len(self.names) + self._texts
        for name in self.names:
            rows[f"_{name}"] = self._dtype[name].itemsize
            rows[name] = values[name]
        return rows.view(np.uint8).reshape(count, self._dtype.itemsize)


def join_rows(fixed: NDArray[np.uint8], texts: Sequence[Slices]) -> bytes:
    """Return the rows, each its fixed part and its texts, one after the other."""
    return b"".join(
        _joined(
            fixed[first : first + _ROWS],
            [text.of_rows(np.arange(first, min(first + _ROWS, len(fixed)))) for text in texts],
        )
        for first in range(0, len(fixed), _ROWS)
    )


def _joined(fixed: NDArray[np.uint8], texts: Sequence[Slices]) -> bytes:
    count, width = fixed.shape
    sizes = np.full(count, width + _SIZE * len(texts), np.int64)
    for text in texts:
        sizes += text.sizes
    at = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    out[at[:, None] + np.arange(width)] = fixed
    at += width
    for text in texts:
        heads = text.sizes.astype(">i4").view(np.uint8).reshape(count, _SIZE)
        out[at[:, None] + np.arange(_SIZE)] = heads
        at += _SIZE
        _scatter(out, at, text)
        at += text.sizes
    assert at[-1] == len(out), "a row does not end where the next one begins"
    return out.tobytes()


def _scatter(out: NDArray[np.uint8], at: NDArray[np.int64], text: Slices) -> None:
    total = int(text.sizes.sum())
    if not total:
        return
    within = np.arange(total) - np.repeat(np.cumsum(text.sizes) - text.sizes, text.sizes)
    out[np.repeat(at, text.sizes) + within] = text.data[np.repeat(text.starts, text.sizes) + within]
