"""Run a module as a child that does not outlive its parent: ``python -P child.py MODULE``.

A supervisor that is killed cannot stop its children. On Linux the kernel is asked to send them
SIGTERM when that happens; elsewhere they stay, as children do.
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
    """Have this process sent SIGTERM when its parent, of this id, is gone."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the kernel knew what to do
        sys.exit(f"the process that started this one ({parent}) is gone")


if __name__ == "__main__":
    _, parent_pid, module, *arguments = sys.argv
    stop_with_parent(int(parent_pid))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
