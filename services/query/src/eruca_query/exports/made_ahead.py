"""Prepare the next item while one is used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

_T = TypeVar("_T")


async def made_ahead(source: AsyncGenerator[_T, None]) -> AsyncGenerator[_T, None]:
    """Yield the items of *source*; prepare the next one while one is used.

    When closed, cancel the preparation, then close *source*.
    """
    async with aclosing(source):
        making = asyncio.create_task(_next(source))
        try:
            while made := await making:
                making = asyncio.create_task(_next(source))
                yield made[0]
        finally:
            making.cancel()
            await asyncio.wait((making,))
            if not making.cancelled():
                making.exception()  # mark it as retrieved: the caller has seen it, or has left


async def _next(source: AsyncGenerator[_T, None]) -> list[_T]:
    """Return the next item alone in a list; an empty list at the end."""
    async for item in source:
        return [item]
    return []
