"""Several sorted streams as one, which is sorted as well."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import starmap
from typing import Any, TypeVar

T = TypeVar("T")


async def merged(streams: Iterable[AsyncIterator[T]], key: Callable[[T], Any]) -> AsyncIterator[T]:
    """Yield what *streams* yield, by *key*, in whose order each of them is.

    One item of each stream is held; the next is asked for when that has been taken. The first ones
    are asked for at the same time.
    """
    heads: list[tuple[Any, int, T, AsyncIterator[T]]] = []

    async def push(number: int, stream: AsyncIterator[T]) -> None:
        async for item in stream:
            heapq.heappush(heads, (key(item), number, item, stream))
            return

    await asyncio.gather(*starmap(push, enumerate(streams)))
    while heads:
        _, number, item, stream = heapq.heappop(heads)
        yield item
        await push(number, stream)
