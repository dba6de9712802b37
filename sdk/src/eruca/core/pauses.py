"""Pauses after failures: each is twice the one before, up to a limit.

What is away may be away for days, and is asked all the time: after a thousand failures in a row,
an hour of them, two to the power of their number is more than a float can hold.
"""

from __future__ import annotations

from typing import Final

_DOUBLINGS_MAX: Final = 64  # more than it takes from any first pause to any limit


def doubled(first_seconds: float, times: int, most_seconds: float) -> float:
    """Return the first pause doubled so many *times*, but no more than the most."""
    assert times >= 0, "the first failure is followed by the first pause"
    return min(first_seconds * 2.0 ** min(times, _DOUBLINGS_MAX), most_seconds)
