"""What a service process sets for itself before it serves: memory, garbage collection, files.

Source: glibc ``mallopt(3)``; Python's ``gc.freeze``.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
MMAP_THRESHOLD: Final = 32 * 1024 * 1024  # bytes; the most that every glibc takes
GC_THRESHOLDS: Final = (20_000, 20, 20)  # objects, then rounds of the younger generation
TRIM_THRESHOLD: Final = 256 * 1024 * 1024  # bytes of free memory at the heap's end that are kept


def keep_freed_memory() -> bool:
    """Let malloc keep freed buffers of megabytes instead of returning them to the kernel.

    Otherwise each large request body pays the page faults of its memory again, which costs more
    than everything else that is done with it. Returns False where the C library is not glibc.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = ((_M_MMAP_THRESHOLD, MMAP_THRESHOLD), (_M_TRIM_THRESHOLD, TRIM_THRESHOLD))
    return all(mallopt(option, threshold) == 1 for option, threshold in options)


def freeze_start_up_objects() -> None:
    """Take what exists now out of every later garbage collection: it lives as long as we do.

    A request makes a hundred objects and no cycle among them; looking for cycles after every few
    requests, as Python would, costs more than the few that errors leave behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def file_limit() -> int | None:
    """Return how many files this process may have open; None: any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_file_limit() -> int:
    """Allow as many open files as the system lets this process have, and return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
