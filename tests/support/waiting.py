"""Waiting for what has no event to wait for: another library's state, or another process's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, TypeVar

from support.patience import PATIENCE_SECONDS

T = TypeVar("T")

_PAUSE_MAX: Final = 0.1  # seconds between two looks, however long one takes


def _pause_seconds(shortest: float, looked_at: float) -> float:
    """Return the pause after a look: a long look takes the processor from what is waited for."""
    return min(max(shortest, 10 * (time.monotonic() - looked_at)), _PAUSE_MAX)


async def until(
    condition: Callable[[], object], *, within_seconds: float = PATIENCE_SECONDS
) -> None:
    """Return once *condition* holds; fail if that takes too long."""
    async with asyncio.timeout(within_seconds):
        looked_at = time.monotonic()
        while not condition():
            await asyncio.sleep(_pause_seconds(0.002, looked_at))  # the reason is the module's
            looked_at = time.monotonic()


def wait_until(ask: Callable[[], T | None], *, within_seconds: float = PATIENCE_SECONDS) -> T:
    """Ask again and again, and return the first answer that is not false: there is no loop."""
    asked_at = time.monotonic()
    deadline = asked_at + within_seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, ask
        time.sleep(_pause_seconds(0.02, asked_at))  # as above
        asked_at = time.monotonic()
    return answer


async def until_told(
    ask: Callable[[], Awaitable[T]],
    accept: Callable[[T], object] = bool,
    *,
    within_seconds: float = PATIENCE_SECONDS,
) -> T:
    """Ask again and again, and return the first answer that *accept* takes."""
    async with asyncio.timeout(within_seconds):
        while not accept(answer := await ask()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # as above
    return answer


def until_next_millisecond() -> None:
    """Return when what is stored from now on is newer than what has been stored."""
    now = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == now:
        pass


async def stays(condition: Callable[[], object], *, for_seconds: float = 0.2) -> None:
    """Fail if *condition* ceases to hold soon: of what does not happen there is no event.

    Where something else would come after it, wait for that: it cannot be too early.
    """
    end = time.monotonic() + for_seconds
    while time.monotonic() < end:
        assert condition()
        await asyncio.sleep(0.005)  # as above
    assert condition()


async def turns_during(work: Coroutine[object, object, T]) -> tuple[T, int]:
    """Return what *work* does, and how many turns of the event loop others have had meanwhile."""
    turns = 0
    task = asyncio.create_task(work)
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return await task, turns
