"""Making the next thing while one is used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

_T = TypeVar("_T")


async def made_ahead(source: AsyncGenerator[_T, None]) -> AsyncGenerator[_T, None]:
    """Yield what *source* yields; the next one is under way while one is used.

    *source* is closed with it, once what it was at has been given up.
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
                making.exception()  # whoever uses them has heard it, or does not want to any more


async def _next(source: AsyncGenerator[_T, None]) -> list[_T]:
    """Return what comes next, by itself in a list; nothing at the end."""
    async for item in source:
        return [item]
    return []
