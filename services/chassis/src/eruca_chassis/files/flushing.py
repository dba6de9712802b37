"""Flushes whose failures can be distinguished from all other disk errors.

A failed write reports it, and can be repeated once there is room. A failed flush cannot be
repeated: the kernel may have dropped the pages, and would report success for the next flush.
"""

from __future__ import annotations

import os
from collections.abc import Callable


class FlushError(OSError):
    """A flush failed, whatever its errno: pages written before it may be lost."""


def flush_data(descriptor: int) -> None:
    """Make a file's content durable.

    Raises:
        FlushError: Some of it may be lost.
    """
    _flush(os.fdatasync, descriptor)


def flush_directory(descriptor: int) -> None:
    """Make a directory's names durable.

    Raises:
        FlushError: Some of them may be lost.
    """
    _flush(os.fsync, descriptor)


def _flush(function: Callable[[int], None], descriptor: int) -> None:
    try:
        function(descriptor)
    except OSError as error:
        raise FlushError(error.errno, error.strerror) from error
