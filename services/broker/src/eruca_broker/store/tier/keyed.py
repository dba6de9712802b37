"""Look up keys in one segment of the tier.

A key may be that of every message, so neither all of its rows are read, nor all of their chunks: a
binary search finds the last row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eruca_broker.core.offset_search import partition_point
from eruca_broker.core.tier.queue_tables import (
    FENCE_ROWS,
    KEY_DTYPE,
    KEY_SIZE,
    key_row,
    places_with,
)
from eruca_broker.store.tier.reader import Place, TierReader


class Keyed(NamedTuple):
    """Records of one segment that may have a key."""

    offsets: list[int]  # log offsets, the latest first
    has_more: bool  # there are earlier ones


def keyed(
    tier: TierReader, place: Place, key_hash: int, *, before: int, count_max: int
) -> Keyed | None:
    """Return the latest records of a segment that may have a key; None: it has no keys.

    Args:
        tier: Reads the rows.
        place: The segment.
        key_hash: The hash of the key.
        before: Log offset before which they begin.
        count_max: Maximum number of rows to read, at least 1.

    Raises:
        NotInMemoryError: Something needed is not here, in an attempt.
        UnavailableError: The same, outside an attempt.
    """
    segment, table = place.segment, place.table
    if table.head.key_count is None:
        return None
    first, last = table.keys_near(key_hash)
    # The last fence is not behind the hash. So the end of all its rows is near the last one.
    low = first if before < segment.end else max(first, last - FENCE_ROWS)
    limit = key_row(key_hash, min(before, segment.end) - segment.base)
    end = partition_point(low, last, lambda row: _rows(tier, place, row, row + 1).item() < limit)
    begin = max(first, end - count_max)
    if begin == end:
        return Keyed([], has_more=False)
    rows = _rows(tier, place, begin, end)
    offsets = [segment.base + one for one in places_with(rows, key_hash)]
    return Keyed(offsets, has_more=begin > first and rows.item(0) >= key_row(key_hash, 0))


def _rows(tier: TierReader, place: Place, first: int, last: int) -> NDArray[np.uint64]:
    """Return rows of a segment's keys."""
    begin, end = (place.table.keys_at + row * KEY_SIZE for row in (first, last))
    data = tier.bytes_of(place.segment, place.table, begin, end, is_side=True)
    return np.frombuffer(data, KEY_DTYPE)
