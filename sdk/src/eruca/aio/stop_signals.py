"""SIGTERM and Ctrl-C in a program with consumers: finish the running work, then end.

The first signal tells the consumers to stop. The second one has its usual effect: it ends the
process. So a hanging handler cannot prevent a program's end.

Only signals without a handler are taken over. If the program or a server such as uvicorn handles
them itself, that handler stays in place. Python delivers signals only to the main thread; in
another thread this module does nothing.

Concurrency rule: the main thread's. The only state is the installed signal handlers.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Stoppable(Protocol):
    """A consumer that can be told to stop."""

    def stop_soon(self) -> None:
        """Begin to stop; called by a signal handler."""
        ...


@contextmanager
def stop_on_signals(*consumers: Stoppable) -> Iterator[None]:
    """Stop *consumers* in order on SIGTERM and Ctrl-C while the block runs.

    ``consumer.run()`` does this for one consumer. For several consumers, or around more code::

        with eruca.stop_on_signals(billing, shipping), billing, shipping:
            billing.wait_stopped()
            shipping.wait_stopped()
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = _current() or _StopHandler()
    handler.add(consumers)
    try:
        yield
    finally:
        handler.remove(consumers)


class _StopHandler:
    """Handles the signals while there are consumers to stop."""

    def __init__(self) -> None:
        self._consumers: list[Stoppable] = []
        self._before: dict[signal.Signals, Any] = {}
        self._was_asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._was_asked:
            self._give_back()
            signal.raise_signal(number)
            return
        self._was_asked = True
        for consumer in self._consumers:
            consumer.stop_soon()

    def add(self, consumers: tuple[Stoppable, ...]) -> None:
        self._consumers += consumers
        if self._was_asked:
            for consumer in consumers:
                consumer.stop_soon()
        for number in SIGNALS:
            if number not in self._before and _is_free(before := signal.getsignal(number)):
                self._before[number] = before
                signal.signal(number, self)

    def remove(self, consumers: tuple[Stoppable, ...]) -> None:
        for consumer in consumers:
            self._consumers.remove(consumer)
        if not self._consumers:
            self._give_back()

    def _give_back(self) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) is self:
                signal.signal(number, before)
        self._before.clear()


def _current() -> _StopHandler | None:
    for number in SIGNALS:
        if isinstance(handler := signal.getsignal(number), _StopHandler):
            return handler
    return None


def _is_free(handler: Callable[..., Any] | int | None) -> bool:
    """Tell whether only Python, or asyncio's runner, handles a signal."""
    if handler is signal.SIG_DFL or handler is signal.default_int_handler:
        return True
    if not isinstance(handler, functools.partial):
        return False
    return isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
