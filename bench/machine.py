"""What the measurements stand on: cores, CPU seconds, memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import psutil

SERVER_CORE: Final = 0
LOAD_CORE: Final = 1


def cpu_seconds(process_id: int) -> float:
    """Return user and system time of a process so far."""
    times = psutil.Process(process_id).cpu_times()
    return times.user + times.system


def private_memory(process_id: int) -> int:
    """Return the bytes of memory that are the process's own, mapped files left out."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{process_id}/status has no RssAnon")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))
