"""An event loop in its own thread, for synchronous and asynchronous tests.

Its tasks keep running while a test computes, waits or blocks its own event loop, and a test cannot
disturb them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class LoopThread:
    """The loop and its thread, which run during a ``with`` block."""

    def __init__(
        self,
        name: str,
        new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._new_event_loop = new_event_loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end = asyncio.Event()
        self._is_running = threading.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        # A daemon: an interrupted test session must not wait for it.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        self._is_running.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel the running tasks, and wait until they have cleaned up."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run *coroutine* on the loop, from any other thread, and return its result."""
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(self._listed(coroutine), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # matters if the caller itself was interrupted
            raise

    def within(self, block: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Return a context manager that enters and leaves *block* on the loop."""
        return _Within(self, block)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._new_event_loop) as runner:
            runner.run(self._until_end())

    async def _until_end(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_running.set()
        await self._end.wait()
        for call in self._calls:
            if not call.cancelling():  # a second cancel would interrupt its clean-up
                call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    async def _listed(self, coroutine: Coroutine[Any, Any, T]) -> T:
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        try:
            return await coroutine
        finally:
            self._calls.discard(call)


class _Within(AbstractContextManager[T, None]):
    """A block that is entered and left on a thread's loop.

    It is not a generator. The interpreter would close an abandoned generator at exit, when the loop
    no longer runs, and the process would wait for ever.
    """

    def __init__(self, thread: LoopThread, block: AbstractAsyncContextManager[T]) -> None:
        self._thread = thread
        self._block = block

    def __enter__(self) -> T:
        return self._thread.call(self._block.__aenter__())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.call(self._block.__aexit__(None, None, None))
