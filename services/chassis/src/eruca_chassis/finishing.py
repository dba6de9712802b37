"""Wait for work that continues even when its waiter is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


async def finished(future: asyncio.Future[_T]) -> _T:
    """Return the result of *future*; if cancelled, raise only once it has ended.

    A write in progress is not undone when its waiter is cancelled, and a thread cannot be stopped.
    A caller that returned earlier would give up its turn while they are still working.
    """
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # mark it as retrieved, so that asyncio does not log it
        raise


async def finished_in_thread(work: Callable[[], _T]) -> _T:
    """Run *work* in a thread and return its result; if cancelled, raise only once it has ended."""
    return await finished(asyncio.get_running_loop().run_in_executor(None, work))
