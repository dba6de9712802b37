"""Nothing outlives the program: not after Ctrl-C, not after SIGTERM, not after a failure.

Each server is killed with its process group. Some servers start daemons that leave the group, so
this program adopts orphans below it, and kills by its id each descendant that is left at the end.
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

_PR_SET_CHILD_SUBREAPER: Final = 36  # <linux/prctl.h>
_END_SECONDS_MAX: Final = 10.0


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """End every descendant of this process when the block ends, whatever ends it."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot adopt orphans")
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        # A second Ctrl-C must not interrupt this.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        _kill_descendants()
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, before)


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _kill_descendants() -> None:
    """Kill descendants until there are none: a parent's death makes its children ours."""
    while descendants := psutil.Process(os.getpid()).children(recursive=True):
        for process in descendants:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        _, alive = psutil.wait_procs(descendants, timeout=_END_SECONDS_MAX)
        if alive:
            raise RuntimeError(f"these processes do not end: {[its.pid for its in alive]}")
