"""Blocking work of a command, in a thread beside the event loop, which hears the signals.

A signal handler that raises an exception may raise it anywhere: also where a library starts a
thread, or holds a lock, and then the process may never end. So nothing here raises in a handler.
Ctrl-C and SIGTERM cancel the command's task. The work gets an event, and ends at a place of
its own choice.

Work that does not end within :data:`PATIENCE_SECONDS`, because it waits for a server or a disk, is
left: the process ends without it (:func:`leave_at_once`), as if it had been killed. So this is for
work that may be killed at any moment.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE_SECONDS: Final = 5.0  # with work that was asked to end

_left: list[threading.Thread] = []


async def stoppable(work: Callable[[threading.Event], T]) -> T:
    """Return the result of *work*, which runs in a thread.

    If this is cancelled, the event that *work* gets is set, and the cancellation waits for its end.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    stop = threading.Event()

    def end(result: T | None, error: BaseException | None) -> None:
        if ended.cancelled():
            return
        if error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(result)  # type: ignore[arg-type]  # work has returned it

    def run() -> None:
        result, failure = None, None
        try:
            result = work(stop)
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(end, result, failure)

    thread = threading.Thread(target=run, name="eruca work", daemon=True)
    thread.start()
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([ended], timeout=PATIENCE_SECONDS)
        raise
    finally:
        if ended.done() and not ended.cancelled():
            ended.exception()  # after a cancellation nobody raises it
        else:
            _left.append(thread)


def leave_at_once(code: int) -> None:
    """End the process with *code* if work was left that still runs; else return.

    The interpreter's own end would run into a thread that is inside a library.
    """
    if any(thread.is_alive() for thread in _left):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # its reader is gone, or it is closed
                stream.flush()
        os._exit(code)
