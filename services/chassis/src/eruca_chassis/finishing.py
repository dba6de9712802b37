"""Waiting for what goes on whether one waits or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


async def finished(future: asyncio.Future[_T]) -> _T:
    """Return what *future* comes to; when cancelled, only once it has ended.

    A write that was begun is not undone by nobody waiting for it, and a thread cannot be stopped:
    a caller that left earlier would give up its turn, or its place, while they are at work.
    """
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # or asyncio would complain that nobody asked for it
        raise


async def finished_in_thread(work: Callable[[], _T]) -> _T:
    """Return what *work* comes to in a thread; when cancelled, only once it has ended."""
    return await finished(asyncio.get_running_loop().run_in_executor(None, work))
