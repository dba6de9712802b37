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

from eruca.core.messages.record_columns import strided
from eruca_query.core.property_values import Slices

COPY_HEAD: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
COPY_END: Final = b"\xff\xff"
_SIZE: Final = 4  # bytes of a field's size
_ROWS: Final = 4_096  # assembled at a time; bounds the arrays
_WORD: Final = 8
_SHORT: Final = 256  # bytes of a text that is written in words; longer ones are written one by one


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
    """Return a bounded number of rows.

    The parts are written in words, and the last word of a text overwrites up to seven bytes after
    it. These belong to later texts, or to the next row's fixed part, and are written afterwards.
    """
    count, width = fixed.shape
    assert width >= _WORD
    sizes = np.full(count, width + _SIZE * len(texts), np.int64)
    for text in texts:
        sizes += text.sizes
    begins = np.cumsum(sizes) - sizes
    size = int(sizes.sum())
    out = np.empty(size + _WORD, np.uint8)
    halves, words = strided(out, ">i4", _SIZE), strided(out, "u8", _WORD)
    at = begins + width
    for text in texts:
        halves[at] = text.sizes
        at += _SIZE
        _write_text(out, words, at, text)
        at += text.sizes
    assert at[-1] == size, "a row does not end where the next one begins"
    for place in (*range(0, width - _WORD, _WORD), width - _WORD):
        words[begins + place] = np.ndarray((count,), "u8", fixed, place, (width,))
    return out[:size].tobytes()


def _write_text(
    out: NDArray[np.uint8], words: NDArray[np.uint64], at: NDArray[np.int64], text: Slices
) -> None:
    """Write the text of each row to its place: short ones in words, all rows' at a time."""
    data, starts, sizes = text
    is_short = (sizes <= _SHORT) & (starts + sizes + _WORD <= len(data))
    rows = np.flatnonzero(is_short & (sizes > 0))
    done = 0
    while len(rows):
        words[at[rows] + done] = strided(data, "u8", _WORD)[starts[rows] + done]
        done += _WORD
        rows = rows[sizes[rows] > done]
    for row in np.flatnonzero(~is_short & (sizes > 0)).tolist():
        out[at[row] : at[row] + sizes[row]] = data[starts[row] : starts[row] + sizes[row]]
