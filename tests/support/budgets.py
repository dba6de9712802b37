"""A budget for tests of what takes from one."""

from __future__ import annotations

from eruca.contract.errors import OverloadedError


class ManualBudget:
    """So much of something; remembers how much is in use."""

    name = "manual_budget"

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.used = 0

    def take(self, amount: int, client: str = "") -> None:
        """Take *amount*, if it fits."""
        assert isinstance(client, str)
        if self.used + amount > self.maximum:
            raise OverloadedError("the budget is used up", retry_after_seconds=1)
        self.used += amount

    def give(self, amount: int, client: str = "") -> None:
        """Give *amount* back."""
        assert isinstance(client, str)
        self.used -= amount
        assert self.used >= 0
