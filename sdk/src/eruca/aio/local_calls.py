"""Calling the program's functions: async ones on the event loop, plain ones in threads.

A thread cannot be stopped. So whoever waits for one, and is cancelled, waits until it ends, and is
cancelled then: what the function did is known, and nobody takes it for undone.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from eruca.core.consuming.handler_shape import is_async_function


class Returned(NamedTuple):
    """Result of a function whose caller was cancelled while it ran."""

    value: object


def returned_before(error: BaseException) -> Returned | None:
    """Return what a function returned before its caller ended by *error*, a cancellation."""
    if isinstance(error, asyncio.CancelledError) and error.args:
        told = error.args[0]
        return told if isinstance(told, Returned) else None
    return None


class LocalCalls:
    """Calls functions; belongs to the event loop that first uses it.

    Args:
        threads_max: How many plain functions run at a time; others wait for their turn.
        name: Of the threads.
    """

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._threads: ThreadPoolExecutor | None = None

    def start(self, function: Callable[..., Any], *arguments: object) -> asyncio.Future[Any]:
        """Call *function* and return the future of what it returns.

        Cancelling that stops an async function, and takes back a plain one that has not begun.
        """
        if is_async_function(function):
            awaitable: Awaitable[Any] = function(*arguments)
            return asyncio.ensure_future(awaitable)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._threads_max, thread_name_prefix=self._name)
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads, context.run, function, *arguments)

    async def call(self, function: Callable[..., Any], *arguments: object) -> object:
        """Call *function* and return what it returns.

        Raises:
            CancelledError: The caller was cancelled; :func:`returned_before` tells whether a plain
                function has returned all the same.
        """
        future = self.start(function, *arguments)
        if is_async_function(function):
            return await future
        returned = await to_its_end(future)
        return await returned if inspect.isawaitable(returned) else returned

    def close(self) -> None:
        """Take no further calls; threads end by themselves, when they have done theirs."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)


async def to_its_end(future: asyncio.Future[Any]) -> object:
    """Return the result of what cannot be cancelled; a cancellation comes after that."""
    was_cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            was_cancelled = True
    if not was_cancelled:
        return future.result()
    if (error := future.exception()) is not None:
        raise asyncio.CancelledError from error
    raise asyncio.CancelledError(Returned(future.result()))


def ends_caller(error: BaseException) -> bool:
    """Tell whether *error*, out of the program's code, is the cancellation of whoever called that.

    Else it may be that of something which the program's code has waited for.
    """
    task = asyncio.current_task()
    assert task is not None
    return isinstance(error, asyncio.CancelledError) and task.cancelling() > 0
