"""The key index's slot chains: what each new entry's ``previous`` is, for many entries at once.

A slot holds the number of its newest entry, and each entry the number of the next older one. A
single entry is simple: take the slot's number as ``previous``, put the own number into the slot.
For a batch, gathering all slots and then scattering all numbers does the same, except where two
entries of the batch share a slot. Those are found by gathering once more: an entry whose slot does
not hold its own number was overwritten by a later one. Only they, few unless keys repeat, are put
in order one after another.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Slots = NDArray[np.int32]
"""A file's slot table in memory: for each slot the number of its newest entry, 0 for none."""

_LOOP_COUNT_MAX: Final = 24  # overwritten entries up to which a loop is faster than sorting


def chain(slots: Slots, keys: NDArray[np.int64], first: int) -> tuple[NDArray[np.int32], int]:
    """Add entries to *slots*; return each one's ``previous`` and how many slots came into use.

    Args:
        slots: Changed in place.
        keys: The slot of each entry, oldest entry first; at least one.
        first: Number of the oldest one; the others follow.
    """
    count = len(keys)
    numbers = np.arange(first, first + count, dtype=np.int32)
    previous: NDArray[np.int32] = slots.take(keys)  # quicker than slots[keys]
    slots[keys] = numbers  # of equal keys the last one stays
    newest: NDArray[np.int32] = slots.take(keys)
    overwritten = np.flatnonzero(newest != numbers)
    if len(overwritten):
        link = _link_in_loop if len(overwritten) <= _LOOP_COUNT_MAX else _link_sorted
        link(previous, newest, overwritten, first)
    return previous, count - int(np.count_nonzero(previous))


def _link_in_loop(
    previous: NDArray[np.int32],
    newest: NDArray[np.int32],
    overwritten: NDArray[np.intp],
    first: int,
) -> None:
    older: dict[int, int] = {}  # row of the last one seen, by the row of the slot's newest
    for row, last in zip(overwritten.tolist(), newest[overwritten].tolist(), strict=True):
        if last in older:
            previous[row] = first + older[last]
        older[last] = row
    for last, row in older.items():
        previous[last - first] = first + row


def _link_sorted(
    previous: NDArray[np.int32],
    newest: NDArray[np.int32],
    overwritten: NDArray[np.intp],
    first: int,
) -> None:
    # The newest entry's number names the slot as well as the slot's own number does.
    lasts = newest[overwritten]
    order = np.argsort(lasts, kind="stable")
    rows, lasts = overwritten[order], lasts[order]
    is_same = lasts[1:] == lasts[:-1]
    previous[rows[1:][is_same]] = rows[:-1][is_same] + first
    ends = np.append(~is_same, True)
    previous[lasts[ends] - first] = rows[ends] + first
