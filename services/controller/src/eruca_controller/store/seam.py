"""The interface to a store of rows: compare-and-set of one row, and its history.

Nothing else is required of a store, so that an arbiter can be anything that has compare-and-set.

Invariants of each store, which one suite of tests checks for all of them:

1. Of several swaps that expect the same version, exactly one succeeds.
2. A row that ``swap`` has stored survives the store's crash, and every controller reads it.
3. A swap and its entry in the history are both stored, or neither is.
4. The history is complete and in order, up to its limit.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from eruca_controller.core.rows import GroupRow


class GroupStore(Protocol):
    """Rows by name. Each method raises ArbiterUnavailableError if the store is out of reach.

    A removed group keeps its row, of the kind ``removed``.
    """

    async def read(self, broker_name: str) -> GroupRow | None:
        """Return the current version of a row; None if the name has never been used."""
        ...

    async def swap(self, expected: str | None, row: GroupRow) -> bool:
        """Store *row* if the current version is *expected*; return whether it was.

        After ArbiterUnavailableError it may have been stored or not: ``read`` tells.

        Args:
            expected: The version that *row* replaces; None: the name has never been used.
            row: The new version.
        """
        ...

    async def live(self, *, after: str | None, count_max: int) -> list[GroupRow]:
        """Return the groups that exist, in order of their names, from the one behind *after*."""
        ...

    async def history(
        self, broker_name: str, *, before: int | None, count_max: int
    ) -> list[GroupRow]:
        """Return the versions of a row, the newest first; *before* is a number, exclusive."""
        ...

    async def versions(self, broker_names: Collection[str]) -> dict[str, str]:
        """Return the current versions of these rows; a name that was never used is left out."""
        ...

    async def count(self) -> int:
        """Return the number of names that have a row, removed or not."""
        ...

    async def check(self) -> None:
        """Raise ArbiterUnavailableError unless rows can be read."""
        ...
