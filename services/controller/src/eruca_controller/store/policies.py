"""The interface to a store of the policy: compare-and-set of its newest version, and all versions.

Invariants of each store, which one suite of tests checks for all of them:

1. Of several swaps that expect the same version, exactly one succeeds.
2. A version that ``swap`` has stored survives the store's crash, and every controller reads it.
3. No version is changed or removed.
"""

from __future__ import annotations

from typing import Protocol

from eruca_controller.core.policies import PolicyRow


class PolicyStore(Protocol):
    """Each method raises ArbiterUnavailableError if the store is out of reach."""

    async def newest(self) -> PolicyRow | None:
        """Return the newest version; None: there has never been one."""
        ...

    async def newest_version(self) -> str | None:
        """Return the text that identifies the newest version; None: there is none."""
        ...

    async def swap(self, expected: str | None, row: PolicyRow) -> bool:
        """Store *row* if the newest version is *expected*; return whether it was.

        After ArbiterUnavailableError it may have been stored or not: ``newest`` tells.
        """
        ...

    async def history(self, *, before: int | None, count_max: int) -> list[PolicyRow]:
        """Return versions, the newest first; *before* is a number, exclusive."""
        ...
