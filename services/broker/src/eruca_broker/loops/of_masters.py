"""Steps of loops that only a master runs: their writes are refused when its term ends.

That is no failure. The loop is about to be stopped, and the next master does the same work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from eruca.contract.errors import NotMasterForSureError, OutcomeUnknownError

Step: TypeAlias = Callable[[], Awaitable[float | None]]


def until_demoted(step: Step) -> Step:
    """Return *step*, which does nothing more if the broker has ceased to be master."""

    async def stepped() -> float | None:
        try:
            return await step()
        except (NotMasterForSureError, OutcomeUnknownError):
            return None

    return stepped
