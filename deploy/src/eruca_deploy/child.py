"""Run a module as a child that does not outlive its parent: ``python -P child.py MODULE``.

A killed supervisor cannot stop its children. On Linux the kernel sends them SIGTERM when it dies;
on other systems they keep running.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def stop_with_parent(parent: int) -> None:
    """Let the kernel send SIGTERM to this process when *parent*, its parent's id, dies."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the prctl call
        sys.exit(f"the process that started this one ({parent}) is gone")


if __name__ == "__main__":
    _, parent_pid, module, *arguments = sys.argv
    stop_with_parent(int(parent_pid))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
