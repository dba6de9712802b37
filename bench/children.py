"""Nothing outlives the program: not after a signal, not after a failure, not after a kill.

Each server is killed with its process group. Some servers start daemons that leave the group, such
as PostgreSQL. So this program adopts orphans below it, and kills by its id each descendant that is
left at the end.

It does its work in a child, which does not outlive it. So it can do the same if the work is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

import psutil

from eruca_deploy.child import stop_with_parent

_PR_SET_CHILD_SUBREAPER: Final = 36  # <linux/prctl.h>
_END_SECONDS_MAX: Final = 10.0
_ENDS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """End every descendant of this process when the block ends, whatever ends it.

    The block runs in a child; this process returns nothing, and exits with the child's code.
    """
    _go_on_in_a_child()
    _adopt_orphans()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *_ENDS)}
    for number in _heeded(_ENDS):
        signal.signal(number, _end)
    try:
        yield
    finally:
        _let_nothing_interrupt()
        _kill_descendants()
        for number, handler in before.items():
            signal.signal(number, handler)


def _go_on_in_a_child() -> None:
    """Return in a child; this process waits for its end, and kills what it has left."""
    _adopt_orphans()
    watcher = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)  # a terminal's Ctrl-C comes from the watcher, once
        stop_with_parent(watcher)
        return

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    def stop(number: int, _frame: FrameType | None) -> None:
        """Stop the work and this process, and let both go on when this one does."""
        pass_on(number, None)
        handler = signal.signal(number, signal.SIG_DFL)
        os.kill(watcher, number)  # returns after the SIGCONT
        signal.signal(number, handler)
        pass_on(signal.SIGCONT, None)

    for number in _heeded((signal.SIGINT, *_ENDS)):
        signal.signal(number, pass_on)
    for number in _heeded((signal.SIGTSTP,)):
        signal.signal(number, stop)
    _, status = os.waitpid(child, 0)
    _kill_descendants()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _heeded(numbers: tuple[signal.Signals, ...]) -> list[signal.Signals]:
    """Return the signals that the parent does not ignore, as nohup does."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def _adopt_orphans() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot adopt orphans")


def _end(number: int, _frame: FrameType | None) -> None:
    _let_nothing_interrupt()
    sys.exit(128 + number)


def _let_nothing_interrupt() -> None:
    """Ignore further signals, also those that have come and wait for their handlers.

    A stopped process whose parent is killed gets two at once.
    """
    for number in (signal.SIGINT, *_ENDS):
        signal.signal(number, _ignore)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing."""


def _kill_descendants() -> None:
    """Kill descendants until there are none: a parent's death makes its children ours."""
    while descendants := psutil.Process(os.getpid()).children(recursive=True):
        for process in descendants:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        _, alive = psutil.wait_procs(descendants, timeout=_END_SECONDS_MAX)
        if alive:
            raise RuntimeError(f"these processes do not end: {[its.pid for its in alive]}")
