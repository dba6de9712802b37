"""The machine as the measurements see it: cores, CPU seconds, memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import psutil

SERVER_CORE: Final = 0
LOAD_CORE: Final = 1


def cpu_seconds(process_id: int) -> float:
    """Return the user and system time of a service so far."""
    times = [process.cpu_times() for process in service_processes(process_id)]
    return sum(its.user + its.system for its in times)


def private_memory(process_id: int) -> int:
    """Return the bytes of a service's own memory, without mapped files."""
    return sum(_anonymous(process.pid) for process in service_processes(process_id))


def service_processes(process_id: int) -> list[psutil.Process]:
    """Return a service's process and its workers: the children with the same executable."""
    process = psutil.Process(process_id)
    return [process, *(child for child in process.children() if child.exe() == process.exe())]


def _anonymous(process_id: int) -> int:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{process_id}/status has no RssAnon")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
