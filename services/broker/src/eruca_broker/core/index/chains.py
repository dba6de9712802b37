"""The key index's slot chains: compute the ``previous`` of many new entries at once.

A slot contains the number of its newest entry, and each entry the number of the next older one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from eruca_broker.core.native.library import address_of_array, chain_keys

_NUMBER_MAX: Final = 0x7FFF_FFFF

Slots = NDArray[np.int32]
"""A file's slot table in memory: for each slot the number of its newest entry, 0 for none."""


def chain(slots: Slots, hashes: NDArray[np.int32], first: int) -> tuple[NDArray[np.int32], int]:
    """Add entries to *slots*; return each one's ``previous`` and the number of slots newly in use.

    Args:
        slots: Changed in place.
        hashes: Of each entry's key, oldest entry first; none is negative.
        first: Number of the oldest entry; the others follow.
    """
    assert first > 0, "0 is an empty slot"
    assert first + len(hashes) <= _NUMBER_MAX, "the number of an entry is an i32"
    previous: NDArray[np.int32] = np.empty(len(hashes), np.int32)
    used: int = chain_keys(
        *(address_of_array(slots, np.int32), len(slots), first),
        *(address_of_array(hashes, np.int32), len(hashes), address_of_array(previous, np.int32)),
    )
    return previous, used
