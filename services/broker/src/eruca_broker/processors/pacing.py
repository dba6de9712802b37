"""Divide a request's long work into portions, between which others get their turn."""

from __future__ import annotations

import asyncio
import time
from typing import Final

TURN_SECONDS: Final = 0.005  # maximum wait that it adds for others


class Pace:
    """Limits a piece of work, so that others get their turn of the event loop."""

    def __init__(self) -> None:
        self._turn_ends = time.monotonic() + TURN_SECONDS

    async def step(self) -> bool:
        """Give others their turn if it is time; tell whether, because then anything may change."""
        if time.monotonic() < self._turn_ends:
            return False
        await asyncio.sleep(0)
        self._turn_ends = time.monotonic() + TURN_SECONDS
        return True
