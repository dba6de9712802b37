"""Set a service process up before it serves: memory, garbage collection, open files.

Source: glibc ``mallopt(3)``; Python's ``gc.freeze``.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from typing import Final

from eruca_chassis.running.program import GC_THRESHOLDS

_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
MMAP_THRESHOLD: Final = 32 * 1024 * 1024  # bytes; the maximum that every glibc accepts
TRIM_THRESHOLD: Final = 256 * 1024 * 1024  # free bytes at the heap's end that are kept


def keep_freed_memory() -> bool:
    """Make malloc keep large freed buffers instead of returning them to the kernel.

    Otherwise each large request body pays for the page faults of its memory again, which cost more
    than all other work on it. Returns False if the C library is not glibc.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = ((_M_MMAP_THRESHOLD, MMAP_THRESHOLD), (_M_TRIM_THRESHOLD, TRIM_THRESHOLD))
    return all(mallopt(option, threshold) == 1 for option, threshold in options)


def freeze_start_up_objects() -> None:
    """Exclude all current objects from later garbage collections: they live as long as the process.

    A request makes a hundred objects and no cycle among them. By default Python would search for
    cycles after every few requests, which costs more than the few cycles that errors leave behind.
    What was imported has been exempt since then (:mod:`.program`), so the search here is short.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def file_limit() -> int | None:
    """Return the number of files that this process may open; None if unlimited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_file_limit() -> int:
    """Raise the limit of open files to the system's maximum for this process; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
