"""Names and values of many property texts, as elements of one Arrow array over the texts' bytes.

A text is ``name U+0001 value U+0002`` repeated. The texts of a batch lie in one buffer. The
positions of the separators in it delimit each name and each value, so no Python code runs per
message.

Some texts would be parsed differently here than by
:func:`eruca.contract.properties.decode_properties`: repeated names, fragments without a name or a
value, invalid UTF-8. These are normalized first, one by one.

Source: RocketMQ 5.3, ``MessageDecoder.string2messageProperties``.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eruca.contract.properties import decode_properties, encode_properties
from eruca.rows.arrow_schema import STRING
from eruca.rows.record_fields import ArrowArray, Int32Array, Int64Array, gathered

_NAME_END: Final = 1
_VALUE_END: Final = 2
_TERMINATOR: Final = b"\x02"
_TURN: Final = np.frombuffer(bytes((_NAME_END, _VALUE_END)), np.uint16)[0]
_PARTS: Final = 4  # elements of each property: name, separator, value, separator
_NAMES_IN_BITS_MAX: Final = 48  # a sum of 8 191 such bits, the most properties of a text, has 61


class Fragments(NamedTuple):
    """The properties of n texts; property p belongs to text ``rows[p]``."""

    row_count: int
    rows: Int64Array  # ascending
    names: ArrowArray  # string: each name that occurs, once
    codes: Int32Array  # each property's name, as an index into ``names``
    parts: ArrowArray  # string: four elements for each property

    def code_of(self, name: str) -> int | None:
        """Return the index of *name* in ``names``; None if no text has it."""
        code = self.names.index(name).as_py()
        return None if code < 0 else int(code)

    def values(
        self, properties: Int64Array, is_null: NDArray[np.bool_] | None = None
    ) -> ArrowArray:
        """Return the values of *properties*, which are indexes: string, perhaps null."""
        return self.parts.take(pa.array(properties * _PARTS + 2, mask=is_null))


def read_fragments(texts: ArrowArray) -> Fragments:
    """Parse *texts*, as stored: binary, no nulls."""
    texts = _terminated(texts)
    while True:
        found = _split(texts)
        if isinstance(found, Fragments):
            return found
        texts = _mended(texts, found)


class _Layout(NamedTuple):
    """The layout of texts within their bytes."""

    ends: Int64Array
    octets: NDArray[np.uint8]
    buffer: Any  # Arrow: the same bytes


def _layout(texts: ArrowArray) -> _Layout:
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    first, last = int(bounds[0]), int(bounds[-1])
    buffer = pa.py_buffer(b"") if data is None else data.slice(first, last - first)
    ends = bounds[1:].astype(np.int64) - first
    return _Layout(ends, np.frombuffer(buffer, np.uint8), buffer)


def _terminated(texts: ArrowArray) -> ArrowArray:
    """Return *texts* with the last separator, which RocketMQ omits."""
    layout = _layout(texts)
    is_open = np.diff(layout.ends, prepend=0) > 0
    is_open[is_open] = layout.octets[layout.ends[is_open] - 1] != _VALUE_END
    if not is_open.any():
        return texts
    suffixes = pa.array([b"", _TERMINATOR]).take(pa.array(is_open.astype(np.int8)))
    return pc.binary_join_element_wise(texts, suffixes, b"")


def _split(texts: ArrowArray) -> Fragments | Int64Array:
    """Parse *texts*, or return those that must be normalized first."""
    layout = _layout(texts)
    not_utf8 = _not_utf8(texts)
    if len(not_utf8):
        return not_utf8
    # One comparison finds both separators: 0 wraps round to 255.
    separators = np.flatnonzero((layout.octets - np.uint8(_NAME_END)) < _VALUE_END)
    if not _are_regular(separators, layout):
        separators = _without_inner(separators, layout)
        odd = _odd_rows(separators, layout)
        if len(odd):
            return odd
    bounds = np.empty(2 * len(separators) + 1, np.int32)
    bounds[0] = 0
    bounds[1::2] = separators
    bounds[2::2] = separators + 1
    buffers = [None, pa.py_buffer(bounds), layout.buffer]
    parts = pa.Array.from_buffers(STRING, len(bounds) - 1, buffers)
    return _alike(layout, separators, parts) or _different(layout, separators, parts)


def _alike(layout: _Layout, separators: Int64Array, parts: ArrowArray) -> Fragments | None:
    """Parse texts that all have the same names in the same order; return None for others.

    Most producers write such texts, and then the names need not be compared with each other.
    """
    row_count = len(layout.ends)
    count, rest = divmod(len(separators), 2 * max(row_count, 1))
    if rest or not count:
        return None
    ends = separators.reshape(row_count, 2 * count)
    if not (ends[:, -1] + 1 == layout.ends).all():
        return None
    starts = np.concatenate(([0], layout.ends[:-1]))
    for index in range(count):
        if index:
            starts = ends[:, 2 * index - 1] + 1
        size = int(ends[0, 2 * index] - starts[0])
        if not (ends[:, 2 * index] - starts == size).all():
            return None
        names = gathered(layout.buffer, starts, size)
        if not (names == names[0]).all():
            return None
    names = parts.take(pa.array(np.arange(0, count * _PARTS, _PARTS)))
    if len(names.unique()) < count:
        return None
    codes = np.tile(np.arange(count, dtype=np.int32), row_count)
    return Fragments(row_count, np.repeat(np.arange(row_count), count), names, codes, parts)


def _different(
    layout: _Layout, separators: Int64Array, parts: ArrowArray
) -> Fragments | Int64Array:
    """Parse any texts, or return those with a repeated name."""
    encoded = parts.take(pa.array(np.arange(0, len(parts), _PARTS))).dictionary_encode()
    counts = np.diff(np.searchsorted(separators, layout.ends), prepend=0) // 2
    rows = np.repeat(np.arange(len(counts)), counts)
    fragments = Fragments(len(counts), rows, encoded.dictionary, encoded.indices.to_numpy(), parts)
    doubled = _rows_with_doubles(fragments, counts)
    return doubled if len(doubled) else fragments


def _not_utf8(texts: ArrowArray) -> Int64Array:
    try:
        texts.cast(STRING)
    except pa.ArrowInvalid:
        return np.array([row for row, text in enumerate(texts) if not _is_utf8(text.as_py())])
    return np.zeros(0, np.int64)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _are_regular(separators: Int64Array, layout: _Layout) -> bool:
    """Tell whether names and values alternate everywhere, none of them empty."""
    if len(separators) % 2:
        return False
    if not len(separators):
        return True
    # Each text that is not empty ends in a separator, so the alternation restarts with each text.
    turns = layout.octets[separators].view(np.uint16)
    return bool(
        (turns == _TURN).all()
        and separators[0] > 0
        and (separators[1:] - separators[:-1]).min(initial=2) > 1
    )


def _without_inner(separators: Int64Array, layout: _Layout) -> Int64Array:
    """Return *separators* without those inside a value: a fragment's first one ends its name."""
    ends_value = layout.octets[separators] == _VALUE_END
    follows_value = np.concatenate(([True], ends_value[:-1]))
    outer: Int64Array = separators[ends_value | follows_value]
    return outer


def _odd_rows(separators: Int64Array, layout: _Layout) -> Int64Array:
    """Return the texts in which names and values do not alternate, or one of them is empty."""
    counted = np.searchsorted(separators, layout.ends)
    counts = np.diff(counted, prepend=0)
    rows = np.repeat(np.arange(len(counts)), counts)
    turns = np.arange(len(separators)) - np.repeat(counted - counts, counts)
    expected = np.where(turns % 2 == 0, _NAME_END, _VALUE_END)
    is_odd = (layout.octets[separators] != expected) | (np.diff(separators, prepend=-1) == 1)
    return np.unique(rows[is_odd])


def _rows_with_doubles(fragments: Fragments, counts: Int64Array) -> Int64Array:
    """Return the texts with a repeated name."""
    filled = np.flatnonzero(counts)
    if not len(filled):
        return filled
    if len(fragments.names) <= _NAMES_IN_BITS_MAX:
        # Distinct names give distinct bits, so sum and set agree unless a name is repeated.
        bits = np.left_shift(np.int64(1), fragments.codes.astype(np.int64))
        starts = (np.cumsum(counts) - counts)[filled]
        is_doubled = np.bitwise_or.reduceat(bits, starts) != np.add.reduceat(bits, starts)
        doubled: Int64Array = filled[is_doubled]
        return doubled
    pairs = fragments.rows * len(fragments.names) + fragments.codes
    pairs.sort()
    twice = pairs[1:][pairs[1:] == pairs[:-1]]
    return np.unique(twice // len(fragments.names))


def _mended(texts: ArrowArray, rows: Int64Array) -> ArrowArray:
    """Return *texts* with those of *rows* normalized: each name once, no empty parts."""
    mended = [_mended_text(texts[row].as_py()) for row in rows.tolist()]
    sources = np.arange(len(texts))
    sources[rows] = len(texts) + np.arange(len(rows))
    return pa.concat_arrays([texts, pa.array(mended, pa.binary())]).take(pa.array(sources))


def _mended_text(text: bytes) -> bytes:
    try:
        decoded = text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        decoded = text.decode("utf-8", "replace")
    understood = encode_properties(decode_properties(decoded))
    return understood.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
