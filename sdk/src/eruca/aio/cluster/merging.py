"""Merge several sorted streams into one sorted stream."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import starmap
from typing import Any, TypeVar

T = TypeVar("T")


async def merged(streams: Iterable[AsyncIterator[T]], key: Callable[[T], Any]) -> AsyncIterator[T]:
    """Yield the items of *streams*, merged by *key*; each stream must be sorted by it.

    One item of each stream is held. The next item of a stream is read when that one has been
    yielded. The first items are read concurrently.
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
