"""Call the program's functions: async ones on the event loop, plain ones in threads.

A thread cannot be stopped. So if the caller of a plain function is cancelled, the cancellation is
delayed until the function returns. Its result is known then, and no caller takes it for undone.
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
    """Return the result of a function whose caller was ended by *error*, a cancellation."""
    if isinstance(error, asyncio.CancelledError) and error.args:
        told = error.args[0]
        return told if isinstance(told, Returned) else None
    return None


class LocalCalls:
    """Calls functions; belongs to the event loop that first uses it.

    Args:
        threads_max: Maximum number of plain functions at a time; others wait.
        name: Of the threads.
    """

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._threads: ThreadPoolExecutor | None = None

    def start(self, function: Callable[..., Any], *arguments: object) -> asyncio.Future[Any]:
        """Call *function* and return the future of its result.

        Cancelling the future stops an async function, or removes a plain one that has not begun.
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
        """Call *function* and return its result.

        Raises:
            CancelledError: The caller was cancelled; :func:`returned_before` returns the result
                that a plain function returned nevertheless.
        """
        if is_async_function(function):
            return await function(*arguments)  # in the caller's task: it needs none of its own
        returned = await to_its_end(self.start(function, *arguments))
        return await returned if inspect.isawaitable(returned) else returned

    def close(self) -> None:
        """Accept no more calls; each thread ends after its last call."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)


async def to_its_end(future: asyncio.Future[Any]) -> object:
    """Return the result of an uncancellable call; a cancellation is delayed until then."""
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
    """Tell whether *error*, raised by the program's code, is the cancellation of its caller.

    Otherwise it may be the cancellation of a task that the program's code was waiting for.
    """
    task = asyncio.current_task()
    assert task is not None
    return isinstance(error, asyncio.CancelledError) and task.cancelling() > 0
