"""Binary search over offsets, where looking at one costs a read.

It finds a queue's minimum, its end after a crash, the place of a truncation, and an offset by time.
In each of these a condition holds up to some offset, and never from there on.
"""

from __future__ import annotations

from collections.abc import Callable


def partition_point(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first offset in [low, high) for which *holds* is false; *high* if there is none.

    *holds* must not be true again behind an offset for which it is false.
    """
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            low = middle + 1
        else:
            high = middle
    return low
