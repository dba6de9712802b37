"""Collect the outcomes of a request that concerns many transactions.

Each transaction is begun or decided by itself: one that is refused leaves the others alone. Those
of one request are appended in one turn of the event loop, so they share a write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


class Outcomes(Generic[T]):
    """The outcomes of one request, in its order.

    Args:
        count: Number of transactions.
        done: Called once, with all outcomes.
    """

    def __init__(self, count: int, done: Callable[[Sequence[T | Exception]], None]) -> None:
        assert count, "a request concerns at least one transaction"
        self._missing = count
        self._done = done
        self._outcomes: list[T | Exception | None] = [None] * count

    def take(self, index: int, step: Callable[[Callable[[T | Exception], None]], None]) -> None:
        """Call *step* for one transaction, with the callback for its outcome.

        The exception that *step* raises is the outcome. It has not called back then.
        """
        settle = partial(self._settle, index)
        try:
            step(settle)
        except Exception as error:  # the outermost frame of one transaction
            settle(error)

    def _settle(self, index: int, outcome: T | Exception) -> None:
        assert self._outcomes[index] is None, "a transaction has two outcomes"
        self._outcomes[index] = outcome
        self._missing -= 1
        if not self._missing:
            self._done([found for found in self._outcomes if found is not None])
