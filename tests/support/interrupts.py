"""Ctrl-C, for tests of what it breaks off."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

AGAIN_SECONDS: Final = 0.1


class Interrupt:
    """An interrupt of the main thread, which is noticed once."""

    def __init__(self) -> None:
        self._is_noticed = threading.Event()

    def send(self) -> None:
        """Interrupt the main thread, from any other one; return once it has noticed.

        It is sent again until then: one that comes between the main thread's last look and its wait
        for a lock does not end the wait.
        """
        while not self._is_noticed.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            self._is_noticed.wait(AGAIN_SECONDS)

    def notice(self, *_: object) -> None:
        """Be the signal's handler."""
        if not self._is_noticed.is_set():
            self._is_noticed.set()
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Have SIGINT mean what it means in a terminal, whatever others have made of it."""
    interrupt = Interrupt()
    before = signal.signal(signal.SIGINT, interrupt.notice)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
