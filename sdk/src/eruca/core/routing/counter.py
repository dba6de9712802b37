"""The round-robin counter: counts up before each use and stays non-negative for ever.

RocketMQ has one per thread, so each thread distributes its messages evenly. Here each sender has
its own counter and passes it.

Source: RocketMQ 5.3, ``ThreadLocalIndex``. It wraps a 32-bit number and masks its sign bit, which
is counting modulo 2³¹.
"""

from __future__ import annotations

from typing import Final

_MASK: Final = 0x7FFF_FFFF
assert _MASK & (_MASK + 1) == 0, "only a mask of ones counts modulo its successor"


class Counter:
    """A round-robin counter. Not thread-safe: one for each thread or event loop.

    Args:
        start: Its first value; a random number, or all clients that start together would begin with
            the same queue.
    """

    __slots__ = ("value",)

    def __init__(self, start: int = 0) -> None:
        self.value = start & _MASK

    def advance(self) -> int:
        """Return the next number, from 0 to 2³¹ - 1."""
        self.value = (self.value + 1) & _MASK
        return self.value
