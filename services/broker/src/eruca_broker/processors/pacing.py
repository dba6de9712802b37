"""Long work of a request, done in turns: others have theirs in between."""

from __future__ import annotations

import asyncio
import time
from typing import Final

TURN_SECONDS: Final = 0.005  # what others wait at most, beside what they wait for anyway


class Pace:
    """Limits a piece of work, so that others get their turn of the event loop."""

    def __init__(self) -> None:
        self._turn_ends = time.monotonic() + TURN_SECONDS

    async def step(self) -> bool:
        """Let others have their turn if it is time; tell whether, for then anything may change."""
        if time.monotonic() < self._turn_ends:
            return False
        await asyncio.sleep(0)
        self._turn_ends = time.monotonic() + TURN_SECONDS
        return True
