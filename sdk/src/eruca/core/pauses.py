"""Pauses after failures: each is twice the one before, up to a limit.

A server may be away for days while clients retry. After a thousand consecutive failures, about an
hour, two to that power exceeds a float.
"""

from __future__ import annotations

from typing import Final

_DOUBLINGS_MAX: Final = 64  # more than needed from any first pause to any limit


def doubled(first_seconds: float, times: int, most_seconds: float) -> float:
    """Return the first pause, doubled *times* times, but at most *most_seconds*."""
    assert times >= 0, "the first failure is followed by the first pause"
    return min(first_seconds * 2.0 ** min(times, _DOUBLINGS_MAX), most_seconds)
