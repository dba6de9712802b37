"""A budget: how much of something may be in use at once, under the name of the setting it obeys.

What does not fit is refused before it takes any memory; nothing queues here.
"""

from __future__ import annotations

from typing import Final

from eruca.contract.errors import OverloadedError

RETRY_AFTER_SECONDS: Final = 1.0  # a request in progress ends within about this time


class Budget:
    """A counter with a limit; whoever takes gives back exactly once."""

    def __init__(self, name: str, maximum: int) -> None:
        self.name = name
        self.maximum = maximum
        self.used = 0
        self.refused = 0  # takes that did not fit, since the start

    def take(self, amount: int) -> None:
        """Take *amount*.

        Raises:
            OverloadedError: It does not fit; nothing was taken.
        """
        if self.used + amount > self.maximum:
            self.refused += 1
            raise OverloadedError(
                f"{self.name}: {self.used} of {self.maximum} are in use, {amount} more do not fit",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        self.used += amount

    def give(self, amount: int) -> None:
        """Give *amount* back."""
        self.used -= amount
        assert self.used >= 0
