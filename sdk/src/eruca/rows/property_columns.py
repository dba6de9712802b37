"""Columns from messages' properties: one for each that has a column, and a map of the others."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eruca.contract.properties import (
    CHECKSUM,
    KEY_SEPARATOR,
    KEYS,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
)
from eruca.rows.arrow_schema import LIST_OF_STRINGS, MAP_OF_STRINGS, STRING
from eruca.rows.property_fragments import Fragments
from eruca.rows.record_fields import ArrowArray, Int32Array

COLUMN_PROPERTIES: Final = (TAGS, KEYS, UNIQ_KEY, SHARDING_KEY)
"""Those that have a column of their own, and so are not in the map."""

_NOT_IN_MAP: Final = (*COLUMN_PROPERTIES, CHECKSUM)  # the checksum belongs to the record


def values_of(fragments: Fragments, name: str) -> ArrowArray:
    """Return each message's value of the property *name*: string, null for a message without it."""
    code = fragments.code_of(name)
    if code is None:
        return pa.nulls(fragments.row_count, STRING)
    chosen = np.flatnonzero(fragments.codes == code)
    if len(chosen) == fragments.row_count:  # names are unique in a message, so each has one
        return fragments.values(chosen)
    places = np.full(fragments.row_count, -1)
    places[fragments.rows[chosen]] = chosen
    return fragments.values(places, places < 0)


def keys_of(fragments: Fragments) -> ArrowArray:
    """Return each message's keys: list of strings, empty for a message without keys."""
    texts = pc.fill_null(values_of(fragments, KEYS), "")
    if not pc.any(pc.match_substring(texts, KEY_SEPARATOR)).as_py():
        has_key = pc.not_equal(texts, "")
        return _lists(has_key.to_numpy(zero_copy_only=False), texts.filter(has_key))
    lists = pc.split_pattern(texts, KEY_SEPARATOR)
    pieces = lists.flatten()
    is_key = pc.not_equal(pieces, "")
    keys_before = _offsets(is_key.to_numpy(zero_copy_only=False))
    return _lists(np.diff(keys_before[lists.offsets.to_numpy()]), pieces.filter(is_key))


def others_of(fragments: Fragments) -> ArrowArray:
    """Return each message's properties without a column of their own: map of strings.

    The checksum of the record is left out.
    """
    is_other = np.ones(len(fragments.names), np.bool_)
    for name in _NOT_IN_MAP:
        code = fragments.code_of(name)
        if code is not None:
            is_other[code] = False
    chosen = np.flatnonzero(is_other.take(fragments.codes))
    counts = np.bincount(fragments.rows.take(chosen), minlength=fragments.row_count)
    return pa.MapArray.from_arrays(
        pa.array(_offsets(counts)),
        fragments.names.take(pa.array(fragments.codes.take(chosen))),
        fragments.values(chosen),
        type=MAP_OF_STRINGS,
    )


def _lists(counts: NDArray[np.integer | np.bool_], values: ArrowArray) -> ArrowArray:
    return pa.ListArray.from_arrays(pa.array(_offsets(counts)), values, type=LIST_OF_STRINGS)


def _offsets(counts: NDArray[np.integer | np.bool_]) -> Int32Array:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets
