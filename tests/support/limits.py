"""Real limits for a block: the kernel's own errors instead of simulated ones."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let no file grow, or be written, beyond *size* bytes: as a full disk does.

    A write across the limit is cut short; one behind it raises OSError (EFBIG).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def open_files_limit(more: int) -> Iterator[None]:
    """Let about *more* further files be opened; one more raises OSError (EMFILE)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # or what earlier tests have left would be closed meanwhile, and make room
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
