"""Binary search over offsets, where looking at one costs a read.

Used for a queue's minimum, its end after a crash, a cut and a look-up by time: all ask for the
place where a question that is answered "yes" up to somewhere and "no" from there on turns.
"""

from __future__ import annotations

from collections.abc import Callable


def partition_point(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first offset in [low, high) for which *holds* is false; *high* if there is none.

    *holds* must not be true again behind an offset where it is false.
    """
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            low = middle + 1
        else:
            high = middle
    return low
