"""The bridge from any thread to an event loop: it turns the async SDK into the sync SDK.

The sync classes do not repeat the async ones over blocking sockets. Lingering, prefetching, held
requests and background refreshes are concurrent and would each need a thread. And two
implementations would differ. Instead, one daemon thread runs an event loop (uvloop, if it is
installed). Each sync object has its async twin. A call runs on the loop while the caller waits.
This costs about 20 µs per call; ``send_many``, ``poll`` and iterating spread the cost over many
messages.

Any number of threads may use a sync object, and messages that they send at the same time share
batches. Only a pull consumer and a log follower must be read by one thread at a time, because each
read acknowledges what was handed out before.

Crash rule: the thread ends with the process, whatever it is doing. Only closing drains.

This module is written by hand; ``sdk/tools/generate_sync.py`` generates the others in this package.
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, ParamSpec, TypeVar, cast

from eruca.contract.errors import ClosedError

T = TypeVar("T")
P = ParamSpec("P")


class Portal:
    """Runs functions on its own event loop, which starts with the first of them."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed: asyncio.Future[None]  # done when the loop must end
        self._thread: threading.Thread | None = None
        self._process_id = 0  # of the first use
        self._lock = threading.Lock()
        self._is_closed = False

    def __del__(self) -> None:
        """Warn, as Python does for files: the client can no longer be closed."""
        if self._loop is not None and self._process_id == os.getpid():
            warnings.warn(
                "an Eruca client was not closed: messages that are unsent at the end of the"
                " process are lost; create it with 'with', or call close()",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an async function and return its result.

        Interrupting the caller, for example with Ctrl-C, cancels the function.
        """

        async def run() -> T:
            return await function(*args, **kwargs)

        self._check_process()
        with self._lock:  # no call may reach a loop that is told to stop
            waiting = _Call(self._running_loop(), run)
        try:
            return waiting.result()
        finally:
            del waiting  # as in result()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a plain function on the loop's thread and return its result."""

        async def run() -> T:
            return function(*args, **kwargs)

        return self.call(run)

    def start(
        self,
        function: Callable[P, Awaitable[asyncio.Future[T]]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Future[T]:
        """Run an async function that returns a future; return the matching future for threads."""
        outside: Future[T] = Future()
        outside.set_running_or_notify_cancel()  # a submitted message cannot be withdrawn

        async def run() -> None:
            inside = await function(*args, **kwargs)
            inside.add_done_callback(lambda done: _pass_on(done, outside))

        self.call(run)
        return outside

    def iterate(self, iterator: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an async iterator."""

        async def step() -> tuple[bool, T | None]:
            try:
                return True, await anext(iterator)
            except StopAsyncIteration:
                return False, None

        while True:
            is_more, value = self.call(step)
            if not is_more:
                return
            yield value  # type: ignore[misc]  # a T wherever there is more

    def leave(
        self, function: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Run a function that closes an object, unless the client is closed or was forked."""
        if self._loop is not None and self._process_id == os.getpid():
            self.call(function, *args, **kwargs)

    def finish(
        self, function: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Run a function that closes the client, then end the loop; repeating it is harmless."""
        try:
            self.leave(function, *args, **kwargs)
        finally:
            self._close()

    def _close(self) -> None:
        self._is_closed = True
        if self._process_id != os.getpid():
            return  # the loop runs in the parent process
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            if loop is not None:
                loop.call_soon_threadsafe(self._closed.set_result, None)
        if thread is not None:
            thread.join()

    def _check_process(self) -> None:
        """Raise ClosedError in a process that was forked after the first use.

        This takes no lock: the thread that held it at the fork does not exist in this process.
        """
        process_id = os.getpid()
        if not self._process_id:
            self._process_id = process_id
        elif self._process_id != process_id:
            raise ClosedError(
                "the client was used before this process was forked",
                fix="make a client in each process, after the fork",
            )

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, starting it if necessary; the caller holds the lock."""
        if self._is_closed:
            raise ClosedError("the client is closed")
        if self._loop is None:
            self._loop = _new_event_loop()
            self._closed = self._loop.create_future()
            self._thread = threading.Thread(
                target=_run, args=(self._loop, self._closed), name="eruca", daemon=True
            )
            self._thread.start()
        if threading.current_thread() is self._thread:
            raise RuntimeError("a sync method was called on its own event loop and would wait"
                               " for itself")
        return self._loop


class _Call(Generic[T]):
    """A call on the loop's thread, for which the calling thread waits.

    It needs a lock and a task. A future for threads, and its chain to the task, would take a third
    of the call's time.

    Args:
        loop: Runs it.
        run: Returns its coroutine.
    """

    __slots__ = ("_has_ended", "_loop", "_run", "_task")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, run: Callable[[], Coroutine[None, None, T]]
    ) -> None:
        self._loop = loop
        self._run = run
        self._has_ended = threading.Lock()  # held until then
        self._has_ended.acquire()
        loop.call_soon_threadsafe(self._begin)

    def result(self) -> T:
        """Wait for the result; cancel the call if the waiting is interrupted.

        Raises:
            ClosedError: The client was closed meanwhile.
        """
        try:
            self._has_ended.acquire()
        except BaseException:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._cancel)
            raise
        try:
            return self._task.result()
        except asyncio.CancelledError:
            raise ClosedError("the client was closed meanwhile") from None
        finally:
            del self  # else the error would refer to this frame, and this frame to the error

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._end)

    def _end(self, _: asyncio.Task[T]) -> None:
        self._has_ended.release()

    def _cancel(self) -> None:
        self._task.add_done_callback(_fetch_error)
        self._task.cancel()


def read_here(value: T) -> T:
    """Return *value*; an iterator is read here, and returned as a list.

    A generator is the program's code and must run in the calling thread. It may use objects that no
    other thread may use, or call the SDK, for which the event loop cannot wait.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    return cast("T", list(value))


def _run(loop: asyncio.AbstractEventLoop, closed: asyncio.Future[None]) -> None:
    asyncio.set_event_loop(loop)
    try:
        _run_until_done(loop, closed)
        _run_until_done(loop, loop.create_task(_end_tasks(loop)))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _run_until_done(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    """Run the loop until *future* is done, whatever else ends meanwhile.

    sys.exit in a listener or an async handler ends its task, and the waiting caller gets the error.
    If it ended the loop, that caller would wait for ever, and so would all others.
    """
    future.add_done_callback(lambda _: loop.stop())
    while not future.done():
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


async def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


def _fetch_error(task: asyncio.Task[T]) -> None:
    """Fetch the error of a task for which nobody waits: asyncio would log it as never fetched."""
    if not task.cancelled():
        task.exception()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # in the extra `fast`
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _pass_on(inside: asyncio.Future[T], outside: Future[T]) -> None:
    if inside.cancelled():
        outside.set_exception(ClosedError("the message was cancelled"))
    elif (error := inside.exception()) is not None:
        outside.set_exception(error)
    else:
        outside.set_result(inside.result())
